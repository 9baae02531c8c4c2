package deleteflow

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// deletePod deletes a pod that is not bound to a node. before has the actions of other clients
// meanwhile.
func deletePod(t *testing.T, options metav1.DeleteOptions, before func(w *fixture) func(string)) (*fixture, answer) {
	t.Helper()
	w := newFixture(t, &corev1.Pod{})
	if before != nil {
		w.before = before(w)
	}
	return w, w.deleteWith(w.registry.(rest.GracefulDeleter), options)
}

// A pod is marked before it is removed, even if it has no running container.
func TestR18_PodIsMarkedFirst(t *testing.T) {
	var seen metav1.Object
	w, got := deletePod(t, metav1.DeleteOptions{}, func(w *fixture) func(string) {
		return once("remove", 2, func() { seen = w.stored() })
	})
	if got.err != nil || !got.removed || w.stored() != nil {
		t.Fatalf("%+v, want it removed", got)
	}
	if want := []string{"remove", "update", "remove"}; !slices.Equal(w.writes, want) {
		t.Errorf("transactions %v, want %v", w.writes, want)
	}
	for who, m := range map[string]metav1.Object{"what watchers see": seen, "the answer": got.object} {
		if m == nil || m.GetDeletionTimestamp() == nil || *m.GetDeletionGracePeriodSeconds() != 0 {
			t.Errorf("%s is %v, want it marked", who, m)
		}
	}
}

// AS-02: a precondition on the version applies to the object before the mark.
func TestR18_PodIsMarkedFirstAtItsVersion(t *testing.T) {
	for version, conflict := range map[string]bool{"1": false, "7": true} {
		w, got := deletePod(t, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}}, nil)
		if apierrors.IsConflict(got.err) != conflict || (w.stored() != nil) != conflict {
			t.Errorf("version %s: %+v", version, got)
		}
	}
}

// Writes between the two transactions do not change the outcome.
func TestR18_BetweenMarkAndRemoval(t *testing.T) {
	gone := func(w *fixture) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.object = nil
	}
	for name, change := range map[string]func(w *fixture){
		"another write":       func(w *fixture) { w.change(func(m metav1.Object) { m.SetLabels(map[string]string{"a": "b"}) }) },
		"it is removed":       gone,
		"it is another's now": func(w *fixture) { w.recreate() },
	} {
		w, got := deletePod(t, metav1.DeleteOptions{}, func(w *fixture) func(string) {
			return once("remove", 2, func() { change(w) })
		})
		if got.err != nil || !got.removed || uidOf(got.object) != "1st" || got.object.GetDeletionTimestamp() == nil {
			t.Errorf("%s: %+v, want the marked pod", name, got)
		}
		if left := w.stored(); left != nil && (uidOf(left) != "2nd" || left.GetDeletionTimestamp() != nil) {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

// If the client disconnects in between, a pod that waits for nothing is removed anyway.
func TestR18_ClientGoesBetweenMarkAndRemoval(t *testing.T) {
	w := newFixture(t, &corev1.Pod{})
	ctx, cancel := context.WithCancel(w.context(t.Context()))
	w.before = once("remove", 2, cancel)
	_, removed, err := w.registry.(rest.GracefulDeleter).Delete(ctx, "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	if err != nil || !removed || w.stored() != nil {
		t.Errorf("removed %v, %v; %v is left", removed, err, w.stored())
	}
}

// Admission runs once, and can refuse the deletion.
func TestR18_AdmissionOfAPodIsAskedOnce(t *testing.T) {
	for _, refusal := range []error{nil, errRefused} {
		w, asked := newFixture(t, &corev1.Pod{}), 0
		_, _, err := w.registry.(rest.GracefulDeleter).Delete(w.context(t.Context()), "a", func(context.Context, runtime.Object) error {
			asked++
			return refusal
		}, &metav1.DeleteOptions{})
		if (err == nil) != (refusal == nil) || (w.stored() == nil) != (refusal == nil) || asked != 1 {
			t.Errorf("refusal %v: %v, asked %d times, %v is left", refusal, err, asked, w.stored())
		}
		if left := w.stored(); left != nil && left.GetDeletionTimestamp() != nil {
			t.Errorf("refused, but marked: %v", left)
		}
	}
}

func TestDryRunOfAPodWritesNothing(t *testing.T) {
	w, got := deletePod(t, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, nil)
	if got.err != nil || !got.removed || got.object.GetDeletionTimestamp() == nil {
		t.Errorf("%+v, want the marked pod", got)
	}
	if left := w.stored(); len(w.writes) > 0 || left == nil || left.GetDeletionTimestamp() != nil {
		t.Errorf("writes %v", w.writes)
	}
}
