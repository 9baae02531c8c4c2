package apiserver_test

import (
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// cleanup is the finalizer with which apiextensions-apiserver deletes the instances of a definition.
const cleanup = "customresourcecleanup.apiextensions.k8s.io"

// things defines a custom resource for one test, and returns its instances.
func (s *server) things(t *testing.T, finalizers ...string) (name string, instances collection) {
	t.Helper()
	group := unique("g") + ".coppice.dev"
	d := definition(group, "things", "Thing")
	d["metadata"].(map[string]any)["finalizers"] = slices.Clone(finalizers)
	s.define(t, d)
	return "things." + group, s.collection(t, gvk(group, "v1", "Thing"), "things", s.namespace(t), nil)
}

// A definition is deleted like any other object: with the finalizer of the policy, and with its own for the
// deletion of its instances.
func TestR17_DefinitionPolicies(t *testing.T) {
	s := sharedServer(t)
	crds := s.definitions(t)
	for _, test := range []struct {
		name       string
		finalizers []string
		options    *metav1.DeleteOptions
		left       []string // when its instances have been deleted
	}{
		{"default", nil, nil, nil},
		{"background", nil, policy(metav1.DeletePropagationBackground), nil},
		{"foreground", nil, policy(metav1.DeletePropagationForeground), []string{foreground}},
		{"orphan", nil, policy(metav1.DeletePropagationOrphan), []string{orphan}},
		{"held", []string{foreign}, nil, []string{foreign}},
		{"held, foreground", []string{foreign}, policy(metav1.DeletePropagationForeground), []string{foreign, foreground}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			name, _ := s.things(t, test.finalizers...)
			answer := crds.mustRemove(name, test.options)
			if isStatus(answer) || answer.GetDeletionTimestamp() == nil || !slices.Contains(answer.GetFinalizers(), cleanup) {
				t.Fatalf("the answer is %v", answer.Object)
			}
			eventually.Agrees(t, func() string {
				if slices.Contains(finalizersOf(crds.get(name)), cleanup) {
					return "its instances are not removed yet"
				}
				return ""
			})
			left := crds.get(name)
			if got := finalizersOf(left); !slices.Equal(got, test.left) {
				t.Errorf("finalizers %v, want %v", got, test.left)
			}
			if len(test.left) == 0 {
				if left != nil {
					t.Errorf("it still exists: %v", left)
				}
				return
			}
			if _, err := crds.patch(name, types.MergePatchType, mergeFinalizers()); err != nil {
				t.Fatal(err)
			}
			if left := crds.get(name); left != nil {
				t.Errorf("it still exists: %v", left)
			}
		})
	}
}

func finalizersOf(o *object) []string {
	if o == nil {
		return nil
	}
	return o.GetFinalizers()
}

// A repeated DELETE of a definition adds no finalizer either.
func TestR19_RepeatedDeleteOfDefinition(t *testing.T) {
	s := sharedServer(t)
	crds := s.definitions(t)
	name, _ := s.things(t, foreign)
	crds.mustRemove(name, policy(metav1.DeletePropagationForeground))
	eventually.Agrees(t, func() string {
		if got := finalizersOf(crds.get(name)); !slices.Equal(got, []string{foreign, foreground}) {
			return "its instances are not removed yet"
		}
		return ""
	})
	if _, err := crds.remove(name, policy(metav1.DeletePropagationOrphan)); !apierrors.IsInvalid(err) {
		t.Errorf("orphan: %v, want 422", err)
	}
	for range 2 {
		answer := crds.mustRemove(name, policy(metav1.DeletePropagationBackground))
		if got := answer.GetFinalizers(); !slices.Equal(got, []string{foreign}) {
			t.Errorf("background: finalizers %v", got)
		}
	}
	answer := crds.mustRemove(name, policy(metav1.DeletePropagationForeground))
	if got := answer.GetFinalizers(); !slices.Equal(got, []string{foreign}) {
		t.Errorf("foreground: finalizers %v", got)
	}
}

func TestR17_DefinitionPreconditions(t *testing.T) {
	s := sharedServer(t)
	crds := s.definitions(t)
	name, _ := s.things(t)
	o := crds.get(name)
	for _, preconditions := range []metav1.Preconditions{
		{UID: new(types.UID("another"))},
		{UID: new(o.GetUID()), ResourceVersion: new("1")},
	} {
		if _, err := crds.remove(name, &metav1.DeleteOptions{Preconditions: &preconditions}); !apierrors.IsConflict(err) {
			t.Errorf("%v: %v, want 409", preconditions, err)
		}
	}
	if _, err := crds.remove(name, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if left := crds.get(name); left == nil || left.GetDeletionTimestamp() != nil {
		t.Errorf("it has become %v", left)
	}
}

// Instances of a cluster-scoped definition are deleted in the same way.
func TestR18_ClusterScopedCustomResource(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	group := unique("g") + ".coppice.dev"
	d := definition(group, "things", "Thing")
	d["spec"].(map[string]any)["scope"] = "Cluster"
	crds := s.definitions(t)
	o := &object{Object: d}
	o.SetGroupVersionKind(crds.kind)
	crds.post(o)
	c := s.collection(t, gvk(group, "v1", "Thing"), "things", "", nil)
	var created *object
	eventually.Agrees(t, func() (problem string) {
		var err error
		if created, err = c.tryPost(c.named("a", foreign)); err != nil {
			return err.Error()
		}
		return ""
	})
	isMarked(t, c.mustRemove("a", nil), created, []string{foreign})
	if _, err := c.patch("a", types.MergePatchType, mergeFinalizers()); err != nil {
		t.Fatal(err)
	}
	if left := c.get("a"); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

// CR-03: the instances are deleted with their definition; those with finalizers are marked and
// hold the definition. A new definition of that name has no instances.
func TestR18_DefinitionTakesItsObjects(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	crds := s.definitions(t)
	name, instances := s.things(t)
	instances.create("a")
	held := instances.create("held", foreign)
	crds.mustRemove(name, nil)
	eventually.Agrees(t, func() string {
		switch o := instances.get("held"); {
		case o == nil:
			return "the one with a finalizer is gone"
		case o.GetDeletionTimestamp() == nil:
			return "the one with a finalizer is not marked"
		}
		return ""
	})
	isMarked(t, instances.get("held"), held, []string{foreign})
	if got := instances.names(); !slices.Equal(got, []string{"held"}) {
		t.Errorf("left are %v", got)
	}
	if _, err := instances.tryPost(instances.named("late")); !apierrors.IsForbidden(err) && !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a new object of a terminating definition: %v", err)
	}
	if _, err := instances.patch("held", types.MergePatchType, mergeFinalizers()); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string { // apiextensions-apiserver looks every 5 s
		if crds.get(name) != nil {
			return "the definition is left"
		}
		return ""
	})
	s.define(t, definition(instances.kind.Group, "things", "Thing"))
	if got := instances.names(); len(got) > 0 {
		t.Errorf("the new definition has %v", got)
	}
}
