package namespaces

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// NS-14: one list of each type, no delay, and the namespace is gone.
func TestR22_EmptyNamespaceGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.terminating("shop")
		w.run()
		if took := w.goneWithin("shop", time.Second); took > 50*time.Millisecond {
			t.Errorf("took %v", took)
		}
		synctest.Wait()
		want := []string{
			"discover: 1", "finalize namespace: 1", "get namespace: 1",
			"list configmaps: 1", "list deployments: 1", "list networkpolicies: 1", "list pods: 1", "list rolebindings: 1", "list roles: 1",
		}
		if diff := cmp.Diff(want, w.tally()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// NS-03: contents are deleted stage by stage, and a second sync finds nothing before our finalizer is removed.
func TestR22_ContentsGoInStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		for _, r := range everyType {
			w.create("shop", r, "a")
			w.create("shop", r, "b")
			w.create("other", r, "a")
		}
		w.terminating("shop")
		w.run()
		if took := w.goneWithin("shop", time.Second); took >= minBackoff {
			t.Errorf("took %v: the second look has to come at once", took)
		}
		for i, want := range []Stage{StagePods, StagePods, StageContents, StageContents, StageContents, StageContents, StageAccess} {
			r := everyType[slices.IndexFunc(everyType, func(r Resource) bool { return r.Resource == w.removed[i] })]
			if got := (Order{}).StageOf(r.GroupResource()); got != want {
				t.Errorf("object %d to go was of %s, stage %v, want %v", i, r.Resource, got, want)
			}
		}
		if got := w.count("list pods"); got != 3 {
			t.Errorf("pods were listed %d times, want 3: seen, gone, and still none in the second look", got)
		}
		for _, r := range everyType {
			if left := w.existing(r); len(left) != 1 || left[0].Namespace != "other" {
				t.Errorf("%s left: %d, want the one of the other namespace", r.Resource, len(left))
			}
		}
	})
}

// NS-04, NS-05 and NS-08: a namespace that is not to be emptied costs no request, or one if it was
// still to be emptied when the watch event arrived.
func TestR22_NothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.discovery = errors.New("down")
		w.terminating("active", func(ns *corev1.Namespace) { ns.DeletionTimestamp = nil })
		w.terminating("finalized", func(ns *corev1.Namespace) { ns.Spec.Finalizers = nil })
		c := w.run()
		synctest.Wait()
		if got := w.tally(); len(got) > 0 {
			t.Errorf("requests: %v", got)
		}
		c.queue.Add("finalized") // as if the watch event had arrived before the finalizer was removed
		c.queue.Add("active")
		c.queue.Add("gone")
		synctest.Wait()
		if diff := cmp.Diff([]string{"get namespace: 3"}, w.tally()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// NS-07: after a conflict the namespace is read again.
func TestR22_ConflictIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "shop", errors.New("changed"))
		w.create("shop", pods, "a", "example.com/x")
		w.once["finalize namespace"], w.once["status namespace"], w.once["get namespace"] = conflict, conflict, errors.New("connection reset")
		w.terminating("shop")
		w.run()
		<-time.After(time.Second)
		w.release(pods)
		w.goneWithin("shop", 2*maxBackoff)
		if got := w.count("finalize"); got != 2 {
			t.Errorf("finalize was tried %d times, want 2", got)
		}
	})
}

// NS-09: an error of DELETECOLLECTION affects that request only.
func TestR22_DeleteCollection(t *testing.T) {
	fill := func(w *fakeServer, namespace string) {
		for i := range 2*pageSize + 1 {
			w.create(namespace, configMaps, fmt.Sprintf("c%d", i))
		}
	}
	t.Run("many objects of one type", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newFakeServer(t, everyType...)
			fill(w, "shop")
			w.terminating("shop")
			w.run()
			w.goneWithin("shop", time.Second)
			if pages, single := w.count("deletecollection"), w.count("delete "); pages != 2 || single != 1 {
				t.Errorf("%d collections, %d single objects, want 2 and 1", pages, single)
			}
		})
	})
	t.Run("NS-09 fails once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newFakeServer(t, everyType...)
			w.once["deletecollection configmaps"] = apierrors.NewNotFound(configMaps.GroupResource(), "")
			fill(w, "first")
			w.terminating("first")
			w.run()
			w.goneWithin("first", time.Second)
			if got := w.count("delete "); got != pageSize+1 {
				t.Errorf("%d single objects, want %d", got, pageSize+1)
			}
			before := w.count("deletecollection")
			fill(w, "second")
			w.terminating("second")
			w.goneWithin("second", time.Second)
			if got := w.count("deletecollection") - before; got != 2 {
				t.Errorf("%d collections in the next namespace, want 2", got)
			}
		})
	})
}

// R21: an object whose create passed admission before the namespace was marked
// commits at any moment of the first sync. Whatever the sync had seen by then,
// the object is found if the sync had to delete anything, or had not listed its type.
func TestR21_LateCreateIsFound(t *testing.T) {
	for _, moment := range []string{"get namespace", "list pods", "list configmaps", "delete pods first", "list rolebindings"} {
		t.Run(moment, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeServer(t, everyType...)
				w.create("shop", pods, "first")
				committed := false
				w.before = func(request string) {
					if request == moment && !committed {
						committed = true
						w.create("shop", pods, "late")
					}
				}
				w.terminating("shop")
				w.run(func(c *Config) { c.Concurrency = 1 })
				w.goneWithin("shop", time.Second) // the server refuses to finalize with contents left (S8)
				if !committed {
					t.Error("the late create did not happen")
				}
			})
		})
	}
}

// On a server that does not set the phase, the controller sets it before it lists anything.
func TestR21_PhaseComesBeforeTheLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.terminating("shop", func(ns *corev1.Namespace) {
			ns.Status.Phase = corev1.NamespaceActive
			ns.Finalizers = []string{"example.com/x"}
		})
		w.run()
		synctest.Wait()
		if ns := w.namespace("shop"); ns.Status.Phase != corev1.NamespaceTerminating || len(ns.Spec.Finalizers) != 0 {
			t.Errorf("phase %s, spec.finalizers %v", ns.Status.Phase, ns.Spec.Finalizers)
		}
		if !slices.Equal(w.requests[:2], []string{"get namespace", "status namespace"}) {
			t.Errorf("requests began with %v", w.requests[:2])
		}
	})
}

// An object that was created under the name of a listed one is not deleted in its place,
// and does not stop the deletion of the namespace.
func TestR22_RecreatedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", configMaps, "a")
		w.create("shop", configMaps, "b")
		w.before = func(request string) {
			if request == "delete configmaps a" && w.count(request) == 0 {
				w.replace("shop", configMaps, "a")
				w.replace("shop", configMaps, "b")
			}
		}
		w.terminating("shop")
		w.run(func(c *Config) { c.Concurrency = 1 })
		w.goneWithin("shop", time.Second)
		if got := w.count("delete configmaps"); got != 4 {
			t.Errorf("%d DELETEs, want 4: two that met another object, two that met theirs", got)
		}
		if w.failureReported {
			t.Error("the conflict was reported as a failure")
		}
	})
}

// Config.Settle keeps a namespace for lagging servers, while its contents are deleted.
func TestR22_NamespaceStaysWhileLaggingServersSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", pods, "a")
		w.terminating("shop")
		w.run(func(c *Config) { c.Settle = 5 * time.Second })
		<-time.After(time.Second)
		if len(w.existing(pods)) != 0 || w.namespace("shop") == nil {
			t.Error("want the pod gone and the namespace there")
		}
		if took := w.goneWithin("shop", 5*time.Second); took < 3*time.Second {
			t.Errorf("gone after %v more", took)
		}
	})
}

// S8: on a server whose admission lets a creation pass before the deletion of the namespace, and which carries it out after
// it, the default for such servers leaves nothing behind.
func TestR21_CreationsInFlightAreFound(t *testing.T) {
	for settle, want := range map[time.Duration]int{DefaultSettle: 0, 0: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newFakeServer(t, everyType...)
			w.terminating("shop")
			w.run(func(c *Config) { c.Settle = settle })
			<-time.After(200 * time.Millisecond)
			w.create("shop", configMaps, "late")
			<-time.After(2 * DefaultSettle)
			if w.namespace("shop") != nil {
				t.Error("the namespace is still there")
			}
			if got := len(w.existing(configMaps)); got != want {
				t.Errorf("with %v, %d objects are left behind, want %d", settle, got, want)
			}
		})
	}
}

// NewForConfig passes on the time that a namespace is kept.
func TestOptionsHaveSettle(t *testing.T) {
	for _, settle := range []time.Duration{0, DefaultSettle} {
		c, err := NewForConfig(&rest.Config{Host: "http://server"}, Options{Settle: settle})
		if err != nil {
			t.Fatal(err)
		}
		if c.settle != settle {
			t.Errorf("a namespace is kept for %v, want %v", c.settle, settle)
		}
	}
}

// NS-16 and NS-17: a hundred namespaces, one of which hangs; they share a discovery.
func TestR22_HundredNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("n0", pods, "stuck", "example.com/x")
		for i := range 100 {
			w.create(fmt.Sprintf("n%d", i), configMaps, "a")
			w.terminating(fmt.Sprintf("n%d", i))
		}
		w.run()
		for i := range 99 {
			w.goneWithin(fmt.Sprintf("n%d", i+1), time.Second)
		}
		if w.namespace("n0") == nil {
			t.Error("the namespace with the stuck pod is gone")
		}
		if got := w.count("discover"); got > 100 {
			t.Errorf("%d discoveries", got)
		}
	})
}

// A name is used again while the old namespace is remembered: the new one is another namespace.
func TestR22_NameIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.terminating("shop")
		w.run()
		w.goneWithin("shop", time.Second)
		w.create("shop", pods, "a")
		w.terminating("shop", func(ns *corev1.Namespace) { ns.UID = "another" })
		w.goneWithin("shop", time.Second)
		if got := w.count("discover"); got != 2 {
			t.Errorf("%d discoveries, want one for each namespace", got)
		}
	})
}

// The same if the watch missed the deletion of the old one.
func TestR22_AnotherUIDIsAnotherNamespace(t *testing.T) {
	c, err := New(Config{Client: newFakeServer(t).typed, Metadata: newFakeServer(t)})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "old"}}
	first, isNew := c.termination(ns)
	if again, isNewAgain := c.termination(ns); again != first || !isNew || isNewAgain {
		t.Errorf("remembered %p, then %p; new: %v, then %v", first, again, isNew, isNewAgain)
	}
	ns.UID = "new"
	if other, isNew := c.termination(ns); other == first || !isNew || !other.rediscover {
		t.Errorf("another uid gave %+v, new: %v", other, isNew)
	}
	ns.UID = "alive"
	c.observe(ns)
	if len(c.terminations) > 0 {
		t.Errorf("beside a namespace that is not deleted, %v are remembered", c.terminations)
	}
}

func TestNewChecksTheConfig(t *testing.T) {
	w := newFakeServer(t)
	for want, config := range map[string]Config{
		"required":     {Client: w.typed},
		"not be negat": {Client: w.typed, Metadata: w, Workers: -1},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
	c, err := New(Config{Client: w.typed, Metadata: w})
	if err != nil || c.workers != 10 || c.contents.concurrency != 16 {
		t.Errorf("defaults: %+v, %v", c, err)
	}
}
