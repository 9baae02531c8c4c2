package differential

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// validObjects has a valid object for each built-in kind: the first of each file.
const validObjects = "../../internal/apiserver/registry/builtin/testdata/mutations"

// statesFile has objects in states in which other updates are allowed than for a new object.
const statesFile = "testdata/states.yaml"

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

// objectKinds returns the kinds that both servers serve, with the valid objects in a namespace.
func objectKinds(ctx context.Context, pair [2]*apiServer, namespace string) (kinds []*variation.Kind, missing []string, err error) {
	bases, err := variation.ReadBases(validObjects, validDefinition)
	if err != nil {
		return nil, nil, err
	}
	documents := map[schema.GroupVersion][2]variation.Document{}
	for _, base := range bases {
		k := &variation.Kind{GVK: base.GroupVersionKind()}
		served := true
		for _, s := range pair {
			found, err := s.discover(ctx, k, namespace)
			if err != nil {
				return nil, nil, err
			}
			served = served && found
		}
		if !served {
			missing = append(missing, k.GVK.String())
			continue
		}
		k.Put(base)
		version := k.GVK.GroupVersion()
		if _, ok := documents[version]; !ok {
			var both [2]variation.Document
			for i, s := range pair {
				if both[i], err = s.fetchDocument(ctx, version); err != nil {
					return nil, nil, err
				}
			}
			documents[version] = both
		}
		if k.Shape, err = variation.ShapeOf(k.GVK, documents[version][0], documents[version][1]); err != nil {
			return nil, nil, err
		}
		kinds = append(kinds, k)
	}
	return kinds, missing, nil
}

// fetchDocument reads the OpenAPI document of a group version.
func (s *apiServer) fetchDocument(ctx context.Context, version schema.GroupVersion) (variation.Document, error) {
	code, answer, err := s.send(ctx, http.MethodGet, "/openapi/v3/"+variation.Root(version), "", nil)
	if err != nil || code != http.StatusOK {
		return variation.Document{}, fmt.Errorf("%s: OpenAPI of %s: %d %w", s.name, version, code, err)
	}
	schemas, ok, err := unstructured.NestedMap(answer.Object, "components", "schemas")
	if !ok {
		return variation.Document{}, fmt.Errorf("%s: OpenAPI of %s has no schemas: %w", s.name, version, err)
	}
	return variation.NewDocument(schemas), nil
}

// discover looks for a kind in the discovery of a server, and completes k: what it has already is what another server
// has found.
func (s *apiServer) discover(ctx context.Context, k *variation.Kind, namespace string) (bool, error) {
	code, list, err := s.send(ctx, http.MethodGet, "/"+variation.Root(k.GVK.GroupVersion()), "", nil)
	if err != nil || code != http.StatusOK {
		return false, err
	}
	found := false
	names := []string{}
	var writable []string
	for _, r := range asList(list.Object["resources"]) {
		r := r.(map[string]any)
		name := fmt.Sprint(r["name"])
		names = append(names, name)
		if _, subresource, isOne := strings.Cut(name, "/"); isOne && r["kind"] == k.GVK.Kind && slices.Contains(asList(r["verbs"]), "update") {
			writable = append(writable, "/"+subresource)
		}
		if r["kind"] == k.GVK.Kind && !strings.Contains(name, "/") {
			found, k.Plural = true, name
			if r["namespaced"] == true {
				k.Namespace = namespace
			}
		}
	}
	k.HasStatus = slices.Contains(names, k.Plural+"/status")
	writable = slices.DeleteFunc(writable, func(name string) bool { return !slices.Contains(names, k.Plural+name) })
	if k.Subresources == nil {
		k.Subresources = writable
	}
	k.Subresources = slices.DeleteFunc(k.Subresources, func(name string) bool { return !slices.Contains(writable, name) })
	return found, nil
}

func asList(value any) []any {
	list, _ := value.([]any)
	return list
}
