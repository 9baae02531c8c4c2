package apiserver_test

import (
	"maps"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The rules of deletion are the same for every kind, whichever registry serves it. Tests of a rule run for
// each subject: a built-in kind with status and generation, and a custom resource.
type subject struct {
	name    string
	kind    schema.GroupVersionKind
	plural  string
	content map[string]any
}

const widgetGroup = "test.coppice.dev"

var subjects = []subject{
	{
		"typed", schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, "replicasets", map[string]any{
			"spec": map[string]any{
				"replicas": int64(0),
				"selector": map[string]any{"matchLabels": map[string]any{"app": "a"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}},
				},
			},
		},
	},
	{
		"custom", schema.GroupVersionKind{Group: widgetGroup, Version: "v1", Kind: "Widget"}, "widgets", map[string]any{
			"spec": map[string]any{"size": int64(1)},
		},
	},
}

// onSubjects runs a test for every subject, in a namespace of its own.
func onSubjects(t *testing.T, test func(t *testing.T, c collection)) {
	t.Helper()
	s := sharedServer(t)
	for _, sub := range subjects {
		t.Run(sub.name, func(t *testing.T) {
			t.Parallel()
			test(t, s.subject(t, sub, s.namespace(t)))
		})
	}
}

// widgetsDefined defines the custom resource in the shared server once.
var widgetsDefined sync.Once

// subject returns the collection of a subject in a namespace.
func (s *server) subject(t testing.TB, sub subject, namespace string) collection {
	t.Helper()
	if sub.kind.Group == widgetGroup && s == shared.server {
		widgetsDefined.Do(func() { s.define(t, definition(widgetGroup, "widgets", "Widget")) })
	}
	return s.collection(t, sub.kind, sub.plural, namespace, sub.content)
}

func (s *server) collection(t testing.TB, kind schema.GroupVersionKind, plural, namespace string, content map[string]any) collection {
	t.Helper()
	path := "/apis/" + kind.Group + "/" + kind.Version
	if kind.Group == "" {
		path = "/api/" + kind.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return collection{
		client: s.client(t), t: t, path: path + "/" + plural,
		resource: schema.GroupResource{Group: kind.Group, Resource: plural}, kind: kind, content: content,
	}
}

func (s *server) namespaces(t testing.TB) collection {
	t.Helper()
	return s.collection(t, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "namespaces", "", nil)
}

func (s *server) configMaps(t testing.TB, namespace string) collection {
	t.Helper()
	return s.collection(t, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "configmaps", namespace, nil)
}

func (s *server) pods(t testing.TB, namespace string) collection {
	t.Helper()
	return s.collection(t, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "pods", namespace, map[string]any{
		"spec": map[string]any{
			"nodeName":   "node-1",
			"containers": []any{map[string]any{"name": "a", "image": "a"}},
		},
	})
}

func (s *server) definitions(t testing.TB) collection {
	t.Helper()
	return s.collection(t, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		"customresourcedefinitions", "", nil)
}

// definition returns a CustomResourceDefinition of a namespaced resource with a status.
func definition(group, plural, kind string) map[string]any {
	free := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return map[string]any{
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": plural[:len(plural)-1], "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": free, "status": free},
				}},
			}},
		},
	}
}

// define creates a CustomResourceDefinition, and waits until its resource is served.
func (s *server) define(t testing.TB, d map[string]any) *object {
	t.Helper()
	crds := s.definitions(t)
	o := &object{Object: maps.Clone(d)}
	o.SetGroupVersionKind(crds.kind)
	created := crds.post(o)
	spec := d["spec"].(map[string]any)
	plural := spec["names"].(map[string]any)["plural"].(string)
	instances := s.collection(t, schema.GroupVersionKind{Group: spec["group"].(string), Version: "v1"}, plural, metav1.NamespaceDefault, nil)
	eventually.Agrees(t, func() string {
		// Until then the server may still serve an earlier definition.
		if d := crds.get(created.GetName()); !hasCondition(d, "Established") {
			return "the definition is not established"
		}
		if _, err := instances.send(http.MethodGet, instances.path, "", nil); err != nil {
			return err.Error()
		}
		return ""
	})
	return created
}

func hasCondition(o *object, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == kind {
			return c["status"] == "True"
		}
	}
	return false
}

func gvk(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}
