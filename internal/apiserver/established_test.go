package apiserver_test

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// A definition with unused names is established by the write that creates it: no later write changes it, and its
// resource can be used. In apiextensions-apiserver, each first object would wait for two seconds.
func TestDefinitionsAreEstablishedAtOnce(t *testing.T) {
	s := sharedServer(t)
	group := unique("g") + ".coppice.dev"
	namespace := s.namespace(t)
	crds := s.definitions(t)
	for _, kind := range []string{"Thing", "Widget", "Gadget"} {
		plural := map[string]string{"Thing": "things", "Widget": "widgets", "Gadget": "gadgets"}[kind]
		o := &object{Object: definition(group, plural, kind)}
		o.SetGroupVersionKind(crds.kind)
		created := crds.post(o)
		s.collection(t, gvk(group, "v1", kind), plural, namespace, nil).create("a")
		now := crds.get(created.GetName())
		if !hasCondition(created, "Established") || created.GetResourceVersion() != now.GetResourceVersion() {
			t.Errorf("%s: created is %v, which is now %v", kind, created, now)
		}
	}
}

// If two definitions have one kind, the second is established only after the first has been removed.
func TestDefinitionsThatConflict(t *testing.T) {
	s := sharedServer(t)
	name, instances := s.things(t)
	crds := s.definitions(t)
	o := &object{Object: definition(instances.kind.Group, "rivals", "Thing")}
	o.SetGroupVersionKind(crds.kind)
	rival := crds.post(o)
	eventually.Agrees(t, func() string {
		accepted, _, _ := unstructured.NestedString(crds.get(rival.GetName()).Object, "status", "acceptedNames", "plural")
		if accepted != "rivals" {
			return "the controller has not seen the rival"
		}
		return ""
	})
	if hasCondition(crds.get(rival.GetName()), "Established") {
		t.Error("two definitions have one kind")
	}
	crds.mustRemove(name, nil)
	eventually.Agrees(t, func() string {
		if !hasCondition(crds.get(rival.GetName()), "Established") {
			return "the rival is not established"
		}
		_, err := crds.send(http.MethodGet, "/apis/"+instances.kind.Group+"/v1/rivals", "", nil)
		if err != nil {
			return err.Error()
		}
		return ""
	})
}
