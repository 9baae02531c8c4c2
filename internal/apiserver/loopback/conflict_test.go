package apiserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Of all conflicts, only one over the status of a definition is made an error after
// which the library tries again.
func TestInsistent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := http.StatusConflict
		if strings.Contains(r.URL.Path, "absent") {
			code = http.StatusNotFound
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"`+map[int]string{409: "Conflict", 404: "NotFound"}[code]+`"}`)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.Wrap(insistent)
	client, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	named := func(name string) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if _, err := definitions.UpdateStatus(t.Context(), named("widgets.example.com"), metav1.UpdateOptions{}); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), errAgain.Error()) {
		t.Errorf("a status: %v", err)
	}
	if _, err := definitions.Update(t.Context(), named("widgets.example.com"), metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a definition: %v", err)
	}
	if _, err := definitions.UpdateStatus(t.Context(), named("absent.example.com"), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("one that is gone: %v", err)
	}
}
