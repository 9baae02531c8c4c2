package ownerreferences

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Over the limit, and only there, the owners of new references are read, and references to absent owners
// are refused.
func TestReferencesToAbsentOwnersAreRefusedOverTheLimit(t *testing.T) {
	const there, absent = "apps/Deployment there 1", "apps/Deployment absent 2"
	object := func(owners []metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", OwnerReferences: owners}}
	}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		waiting    int
		old, wants []metav1.OwnerReference
		create     bool
		err        error
		refused    bool
		looks      int
	}{
		"at the limit":                {waiting: MaxBacklog, wants: refs(absent), create: true},
		"over it":                     {waiting: MaxBacklog + 1, wants: refs(absent), create: true, refused: true, looks: 1},
		"over it, owner there":        {waiting: MaxBacklog + 1, wants: refs(there), create: true, looks: 1},
		"over it, no owner":           {waiting: MaxBacklog + 1, create: true},
		"over it, one of two":         {waiting: MaxBacklog + 1, wants: refs(there, absent), create: true, refused: true, looks: 2},
		"over it, an old reference":   {waiting: MaxBacklog + 1, old: refs(absent), wants: refs(absent)},
		"over it, taken away":         {waiting: MaxBacklog + 1, old: refs(absent)},
		"over it, one more by update": {waiting: MaxBacklog + 1, old: refs(there), wants: refs(there, absent), refused: true, looks: 1},
		"over it, cannot look":        {waiting: MaxBacklog + 1, wants: refs(there), create: true, err: broken, looks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			p, err := NewBacklogLimit(func(namespace string) int {
				if namespace != "ns" {
					t.Errorf("asked for namespace %q", namespace)
				}
				return test.waiting
			}, func(_ context.Context, kind schema.GroupKind, namespace string, ref metav1.OwnerReference) (bool, error) {
				looks++
				return kind.String() == "Deployment.apps" && namespace == "ns" && ref.Name == "there", test.err
			})
			if err != nil {
				t.Fatal(err)
			}
			operation, old := admission.Update, object(test.old)
			if test.create {
				operation, old = admission.Create, nil
			}
			err = p.Validate(t.Context(), admission.NewAttributesRecord(object(test.wants), old, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "ns", "p",
				schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", operation, nil, false, &user.DefaultInfo{Name: "ann"}), nil)
			if apierrors.IsTooManyRequests(err) != test.refused || test.err != nil && !errors.Is(err, test.err) || (err != nil) != (test.refused || test.err != nil) {
				t.Errorf("%v", err)
			}
			if seconds, ok := apierrors.SuggestsClientDelay(err); test.refused && (!ok || seconds != backlogRetry) {
				t.Errorf("to come again after %d s", seconds)
			}
			if looks != test.looks {
				t.Errorf("looked for %d owners, want %d", looks, test.looks)
			}
		})
	}
}
