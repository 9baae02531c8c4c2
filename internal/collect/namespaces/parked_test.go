package namespaces

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// protect labels an object as protected, and has its deletion refused.
func (w *fakeServer) protect(r Resource, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changeLocked(r, name, map[string]string{protection.Label: "always"})
	w.broken["delete "+r.Resource+" "+name] = protection.New("always", "").Decide(protection.Cascade, nil).Error(r.GroupResource(), "shop", name)
}

// unprotect lifts the protection, as a user would.
func (w *fakeServer) unprotect(r Resource, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changeLocked(r, name, nil)
	delete(w.broken, "delete "+r.Resource+" "+name)
}

func (w *fakeServer) changeLocked(r Resource, name string, labels map[string]string) {
	for _, o := range w.objects[r] {
		if o.Name == name {
			o.Labels, o.ResourceVersion = labels, o.ResourceVersion+"1"
		}
	}
}

// The deletion of protected objects is tried once a minute at most, and at once when they have
// changed; the conditions of the namespace name them once; all other objects of the stage are
// deleted, however many they are.
func TestR28_ProtectedContentsAreParked(t *testing.T) {
	for name, test := range map[string]struct{ others, protected, collections int }{
		"few objects":                        {3, 1, 0},
		"many objects":                       {3 * manyObjects, 1, 1},
		"more protected ones than a page":    {3, pageSize + 10, 0},
		"more protected ones than two pages": {3, 2*pageSize + 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeServer(t, everyType...)
				for i := range test.protected {
					w.create("shop", configMaps, fmt.Sprintf("kept-%d", i))
					w.protect(configMaps, fmt.Sprintf("kept-%d", i))
				}
				for i := range test.others {
					w.create("shop", configMaps, fmt.Sprintf("other-%d", i))
				}
				w.terminating("shop")
				c := w.run()
				const minutes = 5
				<-time.After(minutes * time.Minute)
				if left := len(w.existing(configMaps)); left != test.protected {
					t.Errorf("%d objects are left, want the %d protected ones", left, test.protected)
				}
				if n := w.count("delete configmaps kept-"); n < test.protected*(minutes-1) || n > test.protected*(minutes+1) {
					t.Errorf("%d DELETEs of %d protected objects in %d minutes", n, test.protected, minutes)
				}
				if n := w.count("deletecollection"); n > test.collections {
					t.Errorf("%d DELETEs of the collection", n)
				}
				if got := w.condition("shop", "NamespaceDeletionContentFailure"); !strings.Contains(got, "configmaps kept-0 is protected by its label coppice.dev/protect=always: nobody deletes it; to lift that: coppice unprotect configmaps/kept-0 -n shop") {
					t.Error(got)
				}
				if n := w.count("status namespace"); n > 3+3*(test.protected/pageSize) {
					t.Errorf("the conditions were written %d times", n)
				}
				if moves := c.Unsettled([]string{"shop"}); len(moves) > 0 {
					t.Errorf("the namespace is said to move: %q", moves)
				}
				for i := range test.protected {
					w.unprotect(configMaps, fmt.Sprintf("kept-%d", i))
				}
				w.goneWithin("shop", 4*maxBackoff)
			})
		})
	}
}

// refuseWhile has the deletion of an object refused as long as another one exists.
func (w *fakeServer) refuseWhile(r Resource, name, outlived string) {
	refusal := protection.New("unused", "").Decide(protection.Cascade, []protection.Remaining{{}}).Error(r.GroupResource(), "shop", name)
	before := w.before
	w.before = func(request string) {
		before(request)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.broken, "delete "+r.Resource+" "+name)
		for _, o := range w.objects[r] {
			if o.Name == outlived {
				w.broken["delete "+r.Resource+" "+name] = refusal
			}
		}
	}
}

// Protected contents that outlive others are deleted when these are gone, without the wait for the next minute.
func TestR28_ParkedContentsEndWithTheOthers(t *testing.T) {
	for name, finalizers := range map[string][]string{"others that go at once": nil, "others that terminate for a while": {"acme.io/cleanup"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFakeServer(t, everyType...)
				w.create("shop", configMaps, "other", finalizers...)
				w.refuseWhile(configMaps, "kept", "other")
				w.refuseWhile(configMaps, "last", "kept")
				w.create("shop", configMaps, "kept")
				w.create("shop", configMaps, "last")
				w.terminating("shop")
				w.run()
				if finalizers != nil {
					<-time.After(protection.RetryAfter / 2)
					if n := len(w.existing(configMaps)); n != 3 {
						t.Fatalf("%d objects are left, want all", n)
					}
					w.release(configMaps)
				}
				w.goneWithin("shop", 2*maxBackoff)
			})
		})
	}
}

// Removals cause one more try of a few parked objects each, and of many one in a minute.
func TestR28_RemovalsCauseBoundedTries(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, test := range []struct {
		parked  int
		removed time.Duration // between two removals
		want    int
	}{
		{fewParked, time.Second, 120},
		{fewParked + 1, time.Second, 2},
		{fewParked + 1, protection.RetryAfter, 120},
	} {
		state, released := &termination{}, 0
		state.park(Object{UID: "a", Version: "1"}, "no", start)
		for i := range 120 {
			now := start.Add(time.Duration(i) * test.removed)
			isParked := func() bool {
				_, parked := state.parked(now)(Object{UID: "a", Version: "1"})
				return parked
			}
			state.park(Object{UID: "a", Version: "1"}, "no", now)
			step := Wait{Stage: StageContents, Remaining: test.parked, Parked: test.parked, Removed: 1, Reason: objectsRemain}
			busy := step
			busy.Remaining, busy.Deleting = busy.Remaining+1, 1
			if state.release(busy, now) || !isParked() {
				t.Fatal("released while others are left")
			}
			if state.release(step, now) {
				released++
				if isParked() {
					t.Fatal("released, and still parked")
				}
			}
			step.Removed, state.last = 0, step
			if state.release(step, now) {
				t.Fatal("released without a removal")
			}
		}
		if released != test.want {
			t.Errorf("%d parked objects, a removal every %s: released %d times, want %d", test.parked, test.removed, released, test.want)
		}
	}
}

// Deletions that are refused for other reasons are tried again as before.
func TestR28_OnlyProtectedContentsAreParked(t *testing.T) {
	content := Content{Resource: configMaps}
	object := &metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1"}
	now := time.Unix(1000, 0)
	state := &termination{}
	if state.parked(now) != nil {
		t.Error("something is parked at first")
	}
	state.park(Object{UID: "a", Version: "1"}, "no", now)
	content.add(object, state.parked(now))
	content.add(&metav1.ObjectMeta{Name: "b", UID: "b", ResourceVersion: "1"}, state.parked(now))
	object.ResourceVersion = "2"
	content.add(object, state.parked(now))
	object.ResourceVersion = "1"
	content.add(object, state.parked(now.Add(time.Minute)))
	if len(content.Parked) != 1 || len(content.Active) != 3 || content.Remaining != 4 {
		t.Errorf("%+v", content)
	}
}

// No more than a kilobyte of a refusal is kept and reported.
func TestWhatIsKeptOfParkedObjectsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", configMaps, "kept")
		w.protect(configMaps, "kept")
		w.broken["delete configmaps kept"] = protection.New(strings.Repeat("x", 1<<20), "").Decide(protection.Cascade, nil).Error(configMaps.GroupResource(), "shop", "kept")
		w.terminating("shop")
		c := w.run()
		<-time.After(time.Minute / 2)
		synctest.Wait()
		for _, held := range c.terminations["shop"].refused {
			if n := len(held.Message); n < maxText || n > 2*maxText {
				t.Errorf("%d bytes of the refusal are kept", n)
			}
		}
		if n := len(c.terminations["shop"].refused); n != 1 {
			t.Errorf("%d refusals are kept", n)
		}
		if n := len(w.condition("shop", "NamespaceDeletionContentFailure")); n < maxText || n > 3*maxText {
			t.Errorf("%d bytes are reported", n)
		}
		w.unprotect(configMaps, "kept")
		w.goneWithin("shop", 4*maxBackoff)
	})
}

// Refusals are forgotten if they have not occurred again for long.
func TestRefusalsOfObjectsThatAreGoneAreForgotten(t *testing.T) {
	start, state := time.Unix(1000, 0), &termination{}
	state.park(Object{UID: "a", Version: "1"}, "no", start)
	state.park(Object{UID: "b", Version: "1"}, "no", start)
	state.park(Object{UID: "b", Version: "1"}, "no", start.Add(forgottenAfter))
	state.forget(start.Add(forgottenAfter - time.Second))
	if len(state.refused) != 2 {
		t.Errorf("%d refusals are kept, want both", len(state.refused))
	}
	state.forget(start.Add(forgottenAfter + protection.RetryAfter))
	if _, kept := state.refused["b"]; !kept || len(state.refused) != 1 {
		t.Errorf("%v is kept, want the refusal that was met again", state.refused)
	}
}
