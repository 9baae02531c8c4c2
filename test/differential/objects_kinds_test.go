package differential

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// validObjects has a valid object for each built-in kind: the first of each file.
const validObjects = "../../internal/apiserver/registry/builtin/testdata/mutations"

// validDefinition defines the kind that apiextensions-apiserver serves.
const validDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.objects.coppice.dev}
spec:
  group: objects.coppice.dev
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}
`

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

// objectKind is a kind whose objects are compared.
type objectKind struct {
	gvk        schema.GroupVersionKind
	collection string // the path of its objects
	status     bool   // whether it has the subresource
	base       map[string]any
	shape      *shape

	subresources []string // that hold the whole object and can be written, with a slash in front
	state        *state   // of the object; nil for the valid one
}

// name returns the name of the valid object.
func (k *objectKind) name() string { return (&unstructured.Unstructured{Object: k.base}).GetName() }

// object returns a copy of the valid object.
func (k *objectKind) object() map[string]any { return runtime.DeepCopyJSON(k.base) }

// readBases returns the valid objects.
func readBases() ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(validObjects, "*.txt"))
	if err != nil {
		return nil, err
	}
	texts := append(validOthers(), validDefinition)
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

// objectKinds returns the kinds that both servers serve, with the valid objects in a namespace.
func objectKinds(ctx context.Context, pair [2]*apiServer, namespace string) (kinds []*objectKind, missing []string, err error) {
	bases, err := readBases()
	if err != nil {
		return nil, nil, err
	}
	documents := map[string][2]document{}
	for _, base := range bases {
		gvk := base.GroupVersionKind()
		root := "apis/" + gvk.Group + "/" + gvk.Version
		if gvk.Group == "" {
			root = "api/" + gvk.Version
		}
		k := &objectKind{gvk: gvk}
		served := true
		for _, s := range pair {
			found, err := s.discover(ctx, root, k, base, namespace)
			if err != nil {
				return nil, nil, err
			}
			served = served && found
		}
		if !served {
			missing = append(missing, gvk.String())
			continue
		}
		if _, ok := documents[root]; !ok {
			var both [2]document
			for i, s := range pair {
				if both[i], err = s.fetchDocument(ctx, root); err != nil {
					return nil, nil, err
				}
			}
			documents[root] = both
		}
		var schemas [2]map[string]any
		for i, d := range documents[root] {
			if schemas[i], err = d.root(gvk.Group, gvk.Version, gvk.Kind); err != nil {
				return nil, nil, err
			}
		}
		k.shape = common(documents[root], schemas, nil)
		kinds = append(kinds, k)
	}
	return kinds, missing, nil
}

// discover looks for a kind in the discovery of a server, and completes k.
func (s *apiServer) discover(ctx context.Context, root string, k *objectKind, base *unstructured.Unstructured, namespace string) (bool, error) {
	code, list, err := s.send(ctx, http.MethodGet, "/"+root, "", nil)
	if err != nil || code != http.StatusOK {
		return false, err
	}
	plural, names := "", []string{}
	var writable []string
	base = base.DeepCopy()
	for _, r := range asList(list.Object["resources"]) {
		r := r.(map[string]any)
		name := fmt.Sprint(r["name"])
		names = append(names, name)
		if _, subresource, isOne := strings.Cut(name, "/"); isOne && r["kind"] == k.gvk.Kind && slices.Contains(asList(r["verbs"]), "update") {
			writable = append(writable, "/"+subresource)
		}
		if r["kind"] == k.gvk.Kind && !strings.Contains(name, "/") {
			plural = name
			k.collection = "/" + root + "/" + plural
			if r["namespaced"] == true {
				moveTo(namespace, base)
				k.collection = "/" + root + "/namespaces/" + namespace + "/" + plural
			}
		}
	}
	k.status = slices.Contains(names, plural+"/status")
	writable = slices.DeleteFunc(writable, func(name string) bool { return !slices.Contains(names, plural+name) })
	if k.subresources == nil {
		k.subresources = writable
	}
	k.subresources = slices.DeleteFunc(k.subresources, func(name string) bool { return !slices.Contains(writable, name) })
	k.base = base.Object
	return plural != "", nil
}

// moveTo puts an object into a namespace, and an Event with its subject.
func moveTo(namespace string, object *unstructured.Unstructured) {
	object.SetNamespace(namespace)
	for _, subject := range []string{"involvedObject", "regarding"} {
		if reference, ok := nested(object.Object, subject); ok {
			reference["namespace"] = namespace
		}
	}
}
