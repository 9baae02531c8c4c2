package apiserver_test

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AS-16: the required fields of an owner reference.
func TestR1_OwnerReferencesAreComplete(t *testing.T) {
	whole := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}
	with := func(change func(*metav1.OwnerReference)) []metav1.OwnerReference {
		r := whole
		change(&r)
		return []metav1.OwnerReference{r}
	}
	second := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "2", Controller: new(true)}
	for name, references := range map[string][]metav1.OwnerReference{
		"no version":      with(func(r *metav1.OwnerReference) { r.APIVersion = "" }),
		"no kind":         with(func(r *metav1.OwnerReference) { r.Kind = "" }),
		"no name":         with(func(r *metav1.OwnerReference) { r.Name = "" }),
		"no uid":          with(func(r *metav1.OwnerReference) { r.UID = "" }),
		"an Event":        with(func(r *metav1.OwnerReference) { r.Kind = "Event" }),
		"two controllers": append(with(func(r *metav1.OwnerReference) { r.Controller = new(true) }), second),
	} {
		t.Run(name, func(t *testing.T) {
			onSubjects(t, func(t *testing.T, c collection) {
				o := c.named("a")
				o.SetOwnerReferences(references)
				if _, err := c.tryPost(o); !apierrors.IsInvalid(err) {
					t.Errorf("create: %v, want 422", err)
				}
				c.create("b")
				patch := map[string]any{"metadata": map[string]any{"ownerReferences": references}}
				if _, err := c.patch("b", types.MergePatchType, patch); !apierrors.IsInvalid(err) {
					t.Errorf("patch: %v, want 422", err)
				}
			})
		})
	}
}

// AS-16: duplicate references are stored once.
func TestR1_OwnerReferencesAreDistinct(t *testing.T) {
	one := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "one", UID: "1"}
	two := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "two", UID: "2"}
	onSubjects(t, func(t *testing.T, c collection) {
		check := func(how string, o *object, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			var uids []types.UID
			for _, r := range o.GetOwnerReferences() {
				uids = append(uids, r.UID)
			}
			if !slices.Equal(uids, []types.UID{"1", "2"}) {
				t.Errorf("%s: owners %v", how, uids)
			}
		}
		o := c.named("a")
		o.SetOwnerReferences([]metav1.OwnerReference{one, two, one})
		created, err := c.tryPost(o)
		check("create", created, err)
		patched, err := c.patch("a", types.MergePatchType, map[string]any{"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{one, one, two}}})
		check("patch", patched, err)
	})
}
