package deleteflow

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

func readAll(t *testing.T, r *http.Request) []byte {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return data
}

// deleters runs a test for both entry points: our registry, and upstream's registry on the guard.
func deleters(t *testing.T, test func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter)) {
	t.Helper()
	t.Run("Flow.Delete", func(t *testing.T) {
		test(t, func(w *fixture) rest.GracefulDeleter { return w.registry.(rest.GracefulDeleter) })
	})
	t.Run("Guard", func(t *testing.T) {
		test(t, func(w *fixture) rest.GracefulDeleter { return w.upstream() })
	})
}

// kubernetes#77988: a finalizer that is accepted during a DELETE keeps the object, and the response
// has the finalizer.
func TestR18_FinalizerBetweenDecisionAndRemoval(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		w := newFixture(t, configMap())
		w.before = once("remove", 1, func() { w.change(withFinalizers(late)) })
		got := w.deleteWith(deleterOf(w), metav1.DeleteOptions{})
		if got.err != nil || got.removed || got.object == nil {
			t.Fatalf("%+v, want the object, marked", got)
		}
		for who, m := range map[string]metav1.Object{"the answer": got.object, "the stored one": w.stored()} {
			if m == nil || m.GetDeletionTimestamp() == nil || !slices.Equal(m.GetFinalizers(), []string{late}) {
				t.Errorf("%s is %v", who, m)
			}
		}
	})
}

// The reverse: the last finalizer is removed while the object is being marked.
func TestR18_LastFinalizerGoesBeforeTheMark(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		w := newFixture(t, configMap(foreign))
		w.before = once("update", 1, func() { w.change(withFinalizers()) })
		got := w.deleteWith(deleterOf(w), metav1.DeleteOptions{})
		if got.err != nil || !got.removed || got.object != nil {
			t.Errorf("%+v, want a Status", got)
		}
		if left := w.stored(); left != nil {
			t.Errorf("it still exists: %v", left)
		}
	})
}

// A DELETE of an object that keeps changing retries for some time, and then fails without losing a
// finalizer.
func TestR18_ObjectThatKeepsChanging(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		w := newFixture(t, configMap())
		w.before = func(write string) {
			if write == "remove" {
				w.change(withFinalizers(late))
			} else {
				w.change(withFinalizers())
			}
		}
		got := w.deleteWith(deleterOf(w), metav1.DeleteOptions{})
		if !isConflict(got.err) {
			t.Errorf("%+v, want a conflict", got)
		}
		if left := w.stored(); left == nil {
			t.Error("it is gone")
		}
		if w.tries > maxTries+1 || len(w.writes) > 4*maxTries {
			t.Errorf("%d tries, %d writes", w.tries, len(w.writes))
		}
	})
}

// AS-10, AS-11: the flow never decides from a cache.
func TestR18_StaleCache(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		w := newFixture(t, configMap())
		w.stale = w.object
		w.change(withFinalizers(late))
		got := w.deleteWith(deleterOf(w), metav1.DeleteOptions{})
		if got.err != nil || got.removed {
			t.Errorf("%+v, want the object, marked", got)
		}
		if left := w.stored(); left == nil || left.GetDeletionTimestamp() == nil {
			t.Errorf("it has become %v", left)
		}
	})
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		w := newFixture(t, configMap())
		w.stale = w.object
		w.change(func(m metav1.Object) { m.SetLabels(map[string]string{"a": "b"}) })
		stale := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}}
		if got := w.deleteWith(deleterOf(w), stale); !isConflict(got.err) || w.stored() == nil {
			t.Errorf("on the version of the cache: %+v, want a conflict", got)
		}
		fresh := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("2")}}
		if got := w.deleteWith(deleterOf(w), fresh); got.err != nil || w.stored() != nil {
			t.Errorf("on the stored version: %+v", got)
		}
	})
}

// AS-03: after a crash, the next DELETE or update removes a marked object that waits for nothing.
func TestR18_MarkedWithNothingToWaitFor(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		for _, p := range []metav1.DeletionPropagation{"", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
			obj := configMap()
			marked(obj)
			w := newFixture(t, obj)
			var options metav1.DeleteOptions
			if p != "" {
				options.PropagationPolicy = &p
			}
			if got := w.deleteWith(deleterOf(w), options); got.err != nil || !got.removed || got.object != nil || w.stored() != nil {
				t.Errorf("policy %q: %+v", p, got)
			}
		}
	})
	obj := configMap()
	marked(obj)
	w := newFixture(t, obj)
	if got := w.update(func(m metav1.Object) { m.SetLabels(map[string]string{"a": "b"}) }); got.err != nil || w.stored() != nil {
		t.Errorf("update: %+v", got)
	}
}

// AS-02: a DELETE that removes the last finalizer of a terminating object compares the precondition
// with the object's version. Upstream's registry, which has nothing to write, compares it with the
// version of an empty object.
func TestR17_VersionOfTheLastFinalizer(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		for version, conflict := range map[string]bool{"1": false, "7": true} {
			obj := configMap()
			marked(obj, metav1.FinalizerOrphanDependents)
			w := newFixture(t, obj)
			got := w.deleteWith(deleterOf(w), metav1.DeleteOptions{
				PropagationPolicy: new(metav1.DeletePropagationForeground),
				Preconditions:     &metav1.Preconditions{ResourceVersion: &version},
			})
			if apierrors.IsConflict(got.err) != conflict || (w.stored() != nil) != conflict {
				t.Errorf("version %s: %+v", version, got)
			}
		}
	})
}

// AS-12: admission sees the object of the transaction, and can refuse the DELETE.
func TestR18_AdmissionSeesTheFreshObject(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		w := newFixture(t, configMap(foreign))
		w.stale = w.object
		w.before = once("update", 1, func() {
			w.change(func(m metav1.Object) { m.SetLabels(map[string]string{"protected": "yes"}) })
		})
		w.serve("delete", "", func(ctx context.Context, _ []byte) (runtime.Object, bool, error) {
			obj, removed, err := deleterOf(w).Delete(ctx, "a", func(_ context.Context, obj runtime.Object) error {
				if metaOf(obj).GetLabels()["protected"] != "" {
					return errRefused
				}
				return nil
			}, &metav1.DeleteOptions{})
			if !errors.Is(err, errRefused) {
				t.Errorf("%v, want the refusal", err)
			}
			return obj, removed, nil
		})
		if left := w.stored(); left == nil || left.GetDeletionTimestamp() != nil {
			t.Errorf("it has become %v", left)
		}
	})
}

// Options for a terminating object in a stale cache do not apply to a new object with the same
// name.
func TestR17_OptionsAreForTheObjectOfTheTransaction(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		for _, finalizers := range [][]string{{foreign}, {metav1.FinalizerOrphanDependents}, {metav1.FinalizerDeleteDependents}} {
			obj := configMap()
			marked(obj, finalizers...)
			w := newFixture(t, obj)
			w.stale = w.object
			w.recreate()
			got := w.deleteWith(deleterOf(w), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})
			if got.err != nil || got.removed {
				t.Errorf("%v: %+v", finalizers, got)
			}
			left := w.stored()
			if uidOf(left) != "2nd" || left.GetDeletionTimestamp() == nil || !slices.Equal(left.GetFinalizers(), []string{metav1.FinalizerDeleteDependents}) {
				t.Errorf("%v: it has become %v", finalizers, left)
			}
		}
	})
}

// A dry run that would remove the last finalizer has the same response as the DELETE.
func TestR20_DryRunOfTheLastFinalizer(t *testing.T) {
	obj := configMap()
	marked(obj, metav1.FinalizerOrphanDependents)
	w := newFixture(t, obj)
	w.deleteWith(w.upstream(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, PropagationPolicy: new(metav1.DeletePropagationBackground)})
	var got metav1.Status
	if err := json.Unmarshal(w.response, &got); err != nil {
		t.Fatal(err)
	}
	want := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: "a", Kind: "configmaps", UID: "1st"},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(w.writes) > 0 {
		t.Errorf("writes %v; (-want +got):\n%s", w.writes, diff)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	for _, finalizers := range [][]string{nil, {foreign}} {
		w := newFixture(t, configMap(finalizers...))
		got := w.deleteWith(w.registry.(rest.GracefulDeleter), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if got.err != nil || got.removed != (finalizers == nil) {
			t.Errorf("%+v", got)
		}
		if len(w.writes) > 0 || w.stored() == nil {
			t.Errorf("writes %v", w.writes)
		}
	}
}

// The objects of a collection share one request, which cannot be served again, so the flow marks
// them in place.
func TestR18_FinalizerDuringDeleteCollection(t *testing.T) {
	w := newFixture(t, configMap())
	w.before = once("remove", 1, func() { w.change(withFinalizers(late)) })
	got := w.serve("deletecollection", "", func(ctx context.Context, _ []byte) (runtime.Object, bool, error) {
		options := &metav1.DeleteOptions{}
		return nil, false, w.upstream().DeleteCollection(ctx, w.admit("", options), options)
	})
	if got.err != nil || w.tries != 1 {
		t.Errorf("%+v after %d tries", got, w.tries)
	}
	if left := w.stored(); left == nil || left.GetDeletionTimestamp() == nil {
		t.Errorf("it has become %v", left)
	}
}

// Upstream's finalizer of CustomResourceDefinitions deletes objects without a request.
func TestR18_DeletionWithoutRequest(t *testing.T) {
	w := newFixture(t, configMap())
	w.before = once("remove", 1, func() { w.change(withFinalizers(late)) })
	if _, _, err := w.upstream().Delete(w.context(t.Context()), "a", rest.ValidateAllObjectFunc, nil); err != nil {
		t.Fatal(err)
	}
	if left := w.stored(); left == nil || left.GetDeletionTimestamp() == nil {
		t.Errorf("it has become %v", left)
	}
	w.change(withFinalizers())
	if _, _, err := w.upstream().Delete(w.context(t.Context()), "a", rest.ValidateAllObjectFunc, nil); err != nil {
		t.Fatal(err)
	}
	if left := w.stored(); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

// A refusal names the resource, even if the resource is not in the table.
func TestStrategyOf(t *testing.T) {
	flow := newFixture(t, configMap()).flow
	for _, resource := range []schema.GroupResource{{Resource: "configmaps"}, {Group: "example.com", Resource: "widgets"}} {
		if got := flow.strategyOf(resource); got.Resource != resource || got.CollectorDisabled {
			t.Errorf("%s: %+v", resource, got)
		}
	}
	if flow.strategyOf(schema.GroupResource{Resource: "pods"}).Grace == nil {
		t.Error("pods are not graceful")
	}
	without := New(Config{Now: time.Now})
	if got := without.strategyOf(corev1.Resource("pods")); !got.CollectorDisabled {
		t.Errorf("without a collector: %+v", got)
	}
}
