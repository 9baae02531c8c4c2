package registry

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/registry/rest"
)

// TestWithoutDeleteCollection compares the methods listed in singleObjectStorage with the methods of REST. It fails
// when a new version of k8s.io/apiserver gives genericregistry.Store a method that the API installer may look for.
func TestWithoutDeleteCollection(t *testing.T) {
	reduced, full := reflect.TypeFor[withoutDeleteCollection](), reflect.TypeFor[*REST]()
	var missing []string
	for method := range full.Methods() {
		if _, ok := reduced.MethodByName(method.Name); !ok {
			missing = append(missing, method.Name)
		}
	}
	want := []string{
		"CompleteWithOptions", // makes the store
		"DeleteCollection",    // excluded on purpose
		// Only callers that know the type use these.
		"GetCreateStrategy", "GetDeleteStrategy", "GetUpdateStrategy", "ListPredicate", "WatchPredicate",
	}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("methods that a REST has and withoutDeleteCollection lacks (-want +got):\n%s", diff)
	}
	var s rest.Storage = withoutDeleteCollection{}
	if _, ok := s.(rest.CollectionDeleter); ok {
		t.Error("deletes collections")
	}
	if _, ok := s.(rest.ResetFieldsStrategy); !ok {
		t.Error("server-side apply would not know what it may not own")
	}
}

func TestIndexedFieldsHaveTriggersAndIndexers(t *testing.T) {
	node := func(p *corev1.Pod) fields.Set { return fields.Set{"spec.nodeName": p.Spec.NodeName} }
	indexed := Define[corev1.Pod, corev1.PodList](Resource{Kind: "Pod", Plural: "pods"}, nil,
		Strategy[*corev1.Pod]{SelectableFields: node, IndexedFields: []string{"spec.nodeName"}})
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}
	triggers, indexers := indexed.indexes()
	if got := triggers["spec.nodeName"](p); got != "n1" {
		t.Errorf("trigger: %q", got)
	}
	if got, err := (*indexers)["f:spec.nodeName"](p); err != nil || len(got) != 1 || got[0] != "n1" {
		t.Errorf("index: %q, %v", got, err)
	}
	plain := Define[corev1.Pod, corev1.PodList](Resource{Kind: "Pod", Plural: "pods"}, nil, Strategy[*corev1.Pod]{SelectableFields: node})
	if triggers, indexers := plain.indexes(); triggers != nil || indexers != nil {
		t.Error("an index without indexed fields")
	}
}
