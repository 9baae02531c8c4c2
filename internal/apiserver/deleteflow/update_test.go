package deleteflow

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// terminating returns an object that is being deleted and waits only for a finalizer.
func terminating() *corev1.ConfigMap {
	obj := configMap()
	marked(obj, foreign)
	return obj
}

func TestR18_EmptyingUpdate(t *testing.T) {
	w := newFixture(t, terminating())
	got := w.update(withFinalizers())
	if got.err != nil || uidOf(got.object) != "1st" || len(got.object.GetFinalizers()) > 0 {
		t.Errorf("%+v", got)
	}
	if left := w.stored(); left != nil {
		t.Errorf("it still exists: %v", left)
	}
	if w.tries != 1 {
		t.Errorf("served %d times", w.tries)
	}
}

// A finalizer that is added between the update that empties the list and the removal keeps the
// object; the update is computed again and removes its own finalizer.
func TestR18_FinalizerBetweenEmptyingUpdateAndRemoval(t *testing.T) {
	w := newFixture(t, terminating())
	w.before = once("remove", 1, func() { w.change(withFinalizers(foreign, late)) })
	got := w.update(func(m metav1.Object) {
		m.SetFinalizers(slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return f == foreign }))
	})
	if got.err != nil || got.object == nil || !slices.Equal(got.object.GetFinalizers(), []string{late}) {
		t.Errorf("%+v", got)
	}
	if left := w.stored(); left == nil || !slices.Equal(left.GetFinalizers(), []string{late}) {
		t.Errorf("it has become %v", left)
	}
	if w.tries != 2 {
		t.Errorf("served %d times", w.tries)
	}
}

// H1: the update removes the object from which it was computed, not a new object with the same
// name.
func TestR1_RecreatedBetweenEmptyingUpdateAndRemoval(t *testing.T) {
	w := newFixture(t, terminating())
	w.before = once("remove", 1, w.recreate)
	got := w.update(withFinalizers())
	if left := w.stored(); uidOf(left) != "2nd" || left.GetDeletionTimestamp() != nil {
		t.Errorf("the new object has become %v (%+v)", left, got)
	}
}

// Any other change of the object causes no conflict for an update without resourceVersion.
func TestR18_ChangeBetweenEmptyingUpdateAndRemoval(t *testing.T) {
	w := newFixture(t, terminating())
	w.before = once("remove", 1, func() {
		w.change(func(m metav1.Object) { m.SetLabels(map[string]string{"a": "b"}) })
	})
	if got := w.update(withFinalizers()); got.err != nil || w.stored() != nil || w.tries != 2 {
		t.Errorf("%+v after %d tries, left %v", got, w.tries, w.stored())
	}
}

// If the object changes every time, the client finally gets a conflict.
func TestR18_EmptyingUpdateThatNeverCatchesUp(t *testing.T) {
	w := newFixture(t, terminating())
	n := 0
	w.before = func(write string) {
		if write == "remove" {
			n++
			w.change(func(m metav1.Object) { m.SetLabels(map[string]string{"n": fmt.Sprint(n)}) })
		}
	}
	got := w.update(withFinalizers())
	if !isConflict(got.err) || w.stored() == nil {
		t.Errorf("%+v, left %v", got, w.stored())
	}
	if w.tries != maxTries+1 {
		t.Errorf("served %d times", w.tries)
	}
}

// Two updates empty the list concurrently: one removes the object, the other finds it gone.
func TestR18_TwoEmptyingUpdates(t *testing.T) {
	w := newFixture(t, terminating())
	w.before = once("remove", 1, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.object = nil
	})
	if got := w.update(withFinalizers()); got.err != nil || w.stored() != nil {
		t.Errorf("%+v, left %v", got, w.stored())
	}
}

// An entry that /finalize adds to spec.finalizers holds a namespace, even between the update
// that removes its last finalizer and the removal.
func TestR18_TokenBetweenEmptyingUpdateAndRemoval(t *testing.T) {
	ns := &corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}}
	marked(ns, foreign)
	w := newFixture(t, ns)
	w.before = once("remove", 1, func() {
		w.change(func(m metav1.Object) {
			m.(*corev1.Namespace).Spec.Finalizers = []corev1.FinalizerName{"example.com/token"}
		})
	})
	got := w.update(withFinalizers())
	if got.err != nil {
		t.Error(got.err)
	}
	if left := w.stored(); left == nil || len(left.GetFinalizers()) > 0 {
		t.Errorf("it has become %v", left)
	}
}

// A grace period holds only objects of kinds that are deleted gracefully.
func TestR18_StoredGrace(t *testing.T) {
	for _, test := range []struct {
		obj  runtime.Object
		gone bool
	}{
		{&corev1.Pod{Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault,
			Containers: []corev1.Container{{
				Name: "a", Image: "a", ImagePullPolicy: corev1.PullAlways,
				TerminationMessagePath: "/t", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			}},
		}}, false},
		{configMap(), true},
	} {
		t.Run(fmt.Sprintf("%T", test.obj), func(t *testing.T) {
			m := metaOf(test.obj)
			marked(m, foreign)
			m.SetDeletionGracePeriodSeconds(new(int64(30)))
			w := newFixture(t, test.obj)
			got := w.update(withFinalizers())
			if got.err != nil || got.object == nil {
				t.Errorf("%+v", got)
			}
			if left := w.stored(); (left == nil) != test.gone {
				t.Errorf("it has become %v", left)
			}
		})
	}
}

// The same, with a finalizer between the update and the removal.
func TestR18_FinalizerBeforeGuardsOwnRemoval(t *testing.T) {
	obj := terminating()
	obj.DeletionGracePeriodSeconds = new(int64(30))
	w := newFixture(t, obj)
	w.before = once("remove", 1, func() { w.change(withFinalizers(foreign, late)) })
	got := w.update(func(m metav1.Object) {
		m.SetFinalizers(slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return f == foreign }))
	})
	if got.err != nil {
		t.Error(got.err)
	}
	if left := w.stored(); left == nil || !slices.Equal(left.GetFinalizers(), []string{late}) {
		t.Errorf("it has become %v", left)
	}
}
