package variation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Kind is a kind whose objects are compared.
type Kind struct {
	GVK       schema.GroupVersionKind
	Plural    string
	Namespace string // of its objects; empty: they are in none
	Base      map[string]any
	Shape     *Shape

	// Subresources hold the whole object and can be written, with a slash in front.
	Subresources []string
	HasStatus    bool
	// State is the state of the object; nil for the valid one.
	State *State
}

// Name returns the name of the valid object.
func (k *Kind) Name() string { return (&unstructured.Unstructured{Object: k.Base}).GetName() }

// Object returns a copy of the valid object.
func (k *Kind) Object() map[string]any { return runtime.DeepCopyJSON(k.Base) }

// Collection returns the path of the objects.
func (k *Kind) Collection() string {
	collection := "/" + Root(k.GVK.GroupVersion()) + "/"
	if k.Namespace != "" {
		collection += "namespaces/" + k.Namespace + "/"
	}
	return collection + k.Plural
}

// Put takes a valid object, and puts it into the namespace of the kind: an Event with its subject.
func (k *Kind) Put(object *unstructured.Unstructured) {
	object = object.DeepCopy()
	if k.Namespace != "" {
		object.SetNamespace(k.Namespace)
		for _, subject := range []string{"involvedObject", "regarding"} {
			if reference, ok := nested(object.Object, subject); ok {
				reference["namespace"] = k.Namespace
			}
		}
	}
	k.Base = object.Object
}

// Root returns the path of a group version, without a slash in front.
func Root(version schema.GroupVersion) string {
	if version.Group == "" {
		return "api/" + version.Version
	}
	return "apis/" + version.String()
}

// ReadBases returns the first object of each file in a directory of mutations, which is a valid one, and others.
func ReadBases(directory string, others ...string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no valid objects in %s: %w", directory, err)
	}
	texts := append(validOthers(), others...)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		_, text, _ := strings.Cut("\n"+string(data), "\nbase\n")
		text, _, _ = strings.Cut(text, "\n----")
		texts = append(texts, text)
	}
	var all []*unstructured.Unstructured
	for _, text := range texts {
		o := &unstructured.Unstructured{}
		json, err := yaml.YAMLToJSON([]byte(text))
		if err == nil {
			err = o.UnmarshalJSON(json)
		}
		if err != nil {
			return nil, fmt.Errorf("%w in %s", err, text)
		}
		all = append(all, o)
	}
	return all, nil
}

// validOthers are of kinds that are served in two group versions, in the one that the files have not.
func validOthers() []string {
	return []string{`
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: autoscaler}
spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: a, apiVersion: apps/v1}}
`, `
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: event}
eventTime: "2026-01-02T03:04:05.000000Z"
reportingController: example.com/a
reportingInstance: a
action: A
reason: A
type: Normal
regarding: {apiVersion: v1, kind: Pod, name: a}
`}
}
