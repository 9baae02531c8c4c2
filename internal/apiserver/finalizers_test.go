package apiserver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// setFinalizers are the ways to reduce an object's finalizers to the given ones.
var setFinalizers = map[string]func(c collection, o *object, finalizers ...string) (*object, error){
	"PUT": func(c collection, o *object, finalizers ...string) (*object, error) {
		o = o.DeepCopy()
		o.SetFinalizers(finalizers)
		return c.put(o)
	},
	"merge patch": func(c collection, o *object, finalizers ...string) (*object, error) {
		return c.patch(o.GetName(), types.MergePatchType, mergeFinalizers(finalizers...))
	},
	"JSON patch": func(c collection, o *object, finalizers ...string) (*object, error) {
		return c.patch(o.GetName(), types.JSONPatchType, []map[string]any{{"op": "replace", "path": "/metadata/finalizers", "value": slices.Clip(append([]string{}, finalizers...))}})
	},
	"server-side apply": func(c collection, o *object, finalizers ...string) (*object, error) {
		return c.apply(o.GetName(), finalizers...)
	},
}

// apply applies an object with these finalizers as the field manager that owns them.
func (c collection) apply(name string, finalizers ...string) (*object, error) {
	return c.send("PATCH", c.at(name)+"?fieldManager=test&force=true", string(types.ApplyPatchType), c.named(name, finalizers...))
}

// onWriters runs a test for every subject and every way to write finalizers.
func onWriters(t *testing.T, test func(t *testing.T, c collection, write func(c collection, o *object, finalizers ...string) (*object, error))) {
	t.Helper()
	for name, write := range setFinalizers {
		t.Run(name, func(t *testing.T) {
			onSubjects(t, func(t *testing.T, c collection) { test(t, c, write) })
		})
	}
}

// AS-04, AS-05: the update that removes the last finalizer removes the object, with any verb, and no other
// update does.
func TestR18_EmptyingUpdateRemoves(t *testing.T) {
	onWriters(t, func(t *testing.T, c collection, write func(c collection, o *object, finalizers ...string) (*object, error)) {
		if _, err := c.apply("a", foreign, other); err != nil {
			t.Fatal(err)
		}
		marked := c.mustRemove("a", nil)
		one, err := write(c, marked, other)
		if err != nil {
			t.Fatal(err)
		}
		if left := c.get("a"); left == nil || !slices.Equal(left.GetFinalizers(), []string{other}) {
			t.Fatalf("after the first one: %v", left)
		}
		answer, err := write(c, one)
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetUID() != marked.GetUID() || len(answer.GetFinalizers()) > 0 {
			t.Errorf("the answer is %v, want the object without finalizers", answer.Object)
		}
		if left := c.get("a"); left != nil {
			t.Errorf("it still exists: %v", left)
		}
	})
}

// Without a deletion, an update that removes the last finalizer keeps the object.
func TestR18_EmptyingUpdateOfActiveObject(t *testing.T) {
	onWriters(t, func(t *testing.T, c collection, write func(c collection, o *object, finalizers ...string) (*object, error)) {
		created, err := c.apply("a", foreign)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := write(c, created); err != nil {
			t.Fatal(err)
		}
		if left := c.get("a"); left == nil || len(left.GetFinalizers()) > 0 {
			t.Errorf("it has become %v", left)
		}
	})
}

// AS-16: no finalizer is added to a terminating object.
func TestR19_NoNewFinalizers(t *testing.T) {
	onWriters(t, func(t *testing.T, c collection, write func(c collection, o *object, finalizers ...string) (*object, error)) {
		if _, err := c.apply("a", foreign); err != nil {
			t.Fatal(err)
		}
		marked := c.mustRemove("a", nil)
		for _, more := range []string{other, orphan, foreground} {
			if _, err := write(c, marked, foreign, more); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v, want 422", more, err)
			}
		}
		if left := c.get("a"); left == nil || !slices.Equal(left.GetFinalizers(), []string{foreign}) {
			t.Errorf("it has become %v", left)
		}
	})
}

// Updates cannot change deletionTimestamp or deletionGracePeriodSeconds.
func TestR19_DeletionIsNotTakenBack(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		c.create("a", foreign)
		marked := c.mustRemove("a", nil)
		undo := marked.DeepCopy()
		undo.SetDeletionTimestamp(nil)
		undo.SetDeletionGracePeriodSeconds(nil)
		undo.SetLabels(map[string]string{"undone": "yes"})
		if _, err := c.put(undo); err != nil {
			t.Fatal(err)
		}
		later := map[string]any{"metadata": map[string]any{"deletionTimestamp": "2100-01-01T00:00:00Z"}}
		if _, err := c.patch("a", types.MergePatchType, later); err != nil && !apierrors.IsInvalid(err) {
			t.Errorf("a later deletionTimestamp: %v", err)
		}
		left := c.get("a")
		if left == nil || !left.GetDeletionTimestamp().Equal(marked.GetDeletionTimestamp()) || left.GetDeletionGracePeriodSeconds() == nil {
			t.Errorf("it has become %v", left)
		}
	})
}

// A write of the status does not affect the deletion.
func TestR18_StatusDecidesNothing(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		c.create("a", foreign)
		marked := c.mustRemove("a", nil)
		report := marked.DeepCopy()
		report.SetFinalizers(nil)
		report.Object["status"] = map[string]any{"replicas": int64(0)}
		if _, err := c.put(report, "status"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.patch("a", types.MergePatchType, mergeFinalizers(), "status"); err != nil {
			t.Fatal(err)
		}
		if left := c.get("a"); left == nil || !slices.Equal(left.GetFinalizers(), []string{foreign}) {
			t.Errorf("it has become %v", left)
		}
	})
}

// The effect of a DELETE of a terminating object, according to the table in R19.
func TestR19_RepeatedDelete(t *testing.T) {
	const (
		refused = "refused"
		gone    = "gone"
	)
	orphaning, inForeground := policy(metav1.DeletePropagationOrphan), policy(metav1.DeletePropagationForeground)
	for _, test := range []struct {
		name      string
		first     *metav1.DeleteOptions
		second    *metav1.DeleteOptions
		remaining string // finalizers of the collector, or refused
	}{
		{"orphan, nothing", orphaning, nil, orphan},
		{"orphan, background", orphaning, policy(metav1.DeletePropagationBackground), gone},
		{"orphan, foreground", orphaning, inForeground, gone},
		{"orphan, orphan", orphaning, orphaning, orphan},
		{"orphan, orphanDependents", orphaning, orphanDependents(true), orphan},
		{"orphan, orphanDependents false", orphaning, orphanDependents(false), gone},
		{"foreground, nothing", inForeground, nil, foreground},
		{"foreground, background", inForeground, policy(metav1.DeletePropagationBackground), gone},
		{"foreground, foreground", inForeground, inForeground, foreground},
		{"foreground, orphan", inForeground, orphaning, refused},
		{"foreground, orphanDependents", inForeground, orphanDependents(true), refused},
		{"neither, nothing", nil, nil, gone},
		{"neither, background", nil, policy(metav1.DeletePropagationBackground), gone},
		{"neither, foreground", nil, inForeground, gone},
		{"neither, orphan", nil, orphaning, refused},
	} {
		for _, held := range []bool{true, false} {
			if test.first == nil && !held {
				continue // the first DELETE removes it
			}
			t.Run(fmt.Sprintf("%s, held %t", test.name, held), func(t *testing.T) {
				onSubjects(t, func(t *testing.T, c collection) {
					finalizers := []string{}
					if held {
						finalizers = append(finalizers, foreign)
					}
					created := c.create("a", finalizers...)
					marked := c.mustRemove("a", test.first)
					for _, dry := range []bool{true, false} {
						repeat(t, c, created, marked, test.second, dry, wanted(test.remaining, marked, finalizers))
					}
				})
			})
		}
	}
}

// wanted returns the finalizers after a repeated DELETE; nil when it is refused.
func wanted(remaining string, marked *object, foreign []string) []string {
	switch remaining {
	case "refused":
		return nil
	case "gone":
		return foreign
	}
	return marked.GetFinalizers()
}

// wouldBeGone is isGone, except that apiextensions-apiserver answers a dry run that would remove
// a custom resource with an empty object.
func wouldBeGone(t *testing.T, c collection, answer, created *object, dry bool) {
	t.Helper()
	if dry && c.kind.Group == widgetGroup && answer.GetKind() == c.kind.Kind {
		return
	}
	isGone(t, c, answer, created)
}

// repeat sends a DELETE of a terminating object, and checks the result.
func repeat(t *testing.T, c collection, created, marked *object, options *metav1.DeleteOptions, dry bool, want []string) {
	t.Helper()
	sent := &metav1.DeleteOptions{}
	if options != nil {
		sent = options.DeepCopy()
	}
	if dry {
		sent.DryRun = []string{metav1.DryRunAll}
	}
	answer, err := c.remove("a", sent)
	left := c.get("a")
	unchanged := left != nil && left.GetResourceVersion() == marked.GetResourceVersion()
	switch {
	case want == nil:
		if !apierrors.IsInvalid(err) {
			t.Errorf("dry %t: %v, want 422", dry, err)
		} else if !strings.Contains(err.Error(), "can no longer be orphaned") {
			t.Errorf("dry %t: it is not said why: %v", dry, err)
		}
		if !unchanged {
			t.Errorf("dry %t: refused, and it has become %v", dry, left)
		}
		return
	case err != nil:
		t.Fatalf("dry %t: %v", dry, err)
	case dry && !unchanged:
		t.Fatalf("after a dry run it has become %v", left)
	case slices.Equal(want, marked.GetFinalizers()) && !unchanged:
		t.Errorf("nothing changes, but it has become %v", left)
	}
	if len(want) == 0 {
		wouldBeGone(t, c, answer, created, dry)
		if !dry && left != nil {
			t.Errorf("it still exists: %v", left)
		}
		return
	}
	isMarked(t, answer, created, want)
}
