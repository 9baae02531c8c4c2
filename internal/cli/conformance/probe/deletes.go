package probe

import (
	"encoding/json"
	"fmt"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer is the server's answer to a successful DELETE: the object, or a Status.
type Answer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// Details are the details of a Status.
	Details *metav1.StatusDetails `json:"details,omitempty"`
}

// Delete deletes an object, and returns the answer or an error.
func (w *Space) Delete(o Object, options metav1.DeleteOptions) (Answer, error) {
	return w.delete(o.path(), options)
}

// DeleteCollection deletes the check's objects of a kind that match a label selector.
func (w *Space) DeleteCollection(k Kind, selector string, options metav1.DeleteOptions) error {
	o := Object{Kind: k, Namespace: w.namespaceOf(k)}
	return w.Objects(o).DeleteCollection(w.T.Context(), options, metav1.ListOptions{LabelSelector: selector})
}

func (w *Space) delete(path string, options metav1.DeleteOptions) (Answer, error) {
	text, err := w.Server.Kube.CoreV1().RESTClient().Delete().AbsPath(path).Body(&options).Do(w.T.Context()).Raw()
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	if err := json.Unmarshal(text, &answer); err != nil {
		return Answer{}, fmt.Errorf("parse the answer to a DELETE: %w", err)
	}
	return answer, nil
}

// path returns the path of an object below the server's address.
func (o Object) path() string {
	at := path.Join("/apis", o.Kind.Group, o.Kind.Version)
	if o.Kind.Group == "" {
		at = path.Join("/api", o.Kind.Version)
	}
	if o.Namespace != "" {
		at = path.Join(at, "namespaces", o.Namespace)
	}
	return path.Join(at, o.Kind.Resource, o.Name)
}
