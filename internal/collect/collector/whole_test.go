package collector_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// manyOwners is more than the graph keeps.
const manyOwners = 30

// withManyOwners creates a pod with many owners, whose references have some form.
func withManyOwners(w *fixture, form func(ownership.Reference) ownership.Reference) {
	w.t.Helper()
	var owners []ownership.Reference
	for n := range manyOwners {
		owners = append(owners, form(ownedBy(w.set(fmt.Sprint("owner-", n)))))
	}
	w.pod("pod", owners...)
	w.settle()
	w.mustHaveOwnersOf("pod", manyOwners)
}

// mustHaveOwnersOf checks the number of owners of a pod.
func (w *fixture) mustHaveOwnersOf(pod string, want int) {
	w.t.Helper()
	if o, _ := w.Lookup(podRef(pod)); len(o.Owners) != want {
		w.t.Fatalf("%s has %d owners, want %d", pod, len(o.Owners), want)
	}
}

func asItIs(r ownership.Reference) ownership.Reference { return r }

// R30: an object with many owners stays until the last of them is gone, whatever the order, and is collected then.
func TestR30_ManyOwnersGoOneByOne(t *testing.T) {
	for name, isHeld := range map[string]bool{"the watches show each": false, "the watch of the owners lags": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			withManyOwners(w, asItIs)
			if isHeld {
				w.Hold(setKind)
			}
			for n := range manyOwners - 1 {
				w.Remove(setRef(fmt.Sprint("owner-", (n*7+3)%manyOwners)), background)
				w.settle()
				w.mustExist(podRef("pod"))
			}
			if isHeld {
				w.Unhold(setKind)
			}
			w.settle()
			w.mustHaveOwnersOf("pod", 1)
			w.Remove(setRef(fmt.Sprint("owner-", ((manyOwners-1)*7+3)%manyOwners)), background)
			w.settle()
			w.mustBeGone(podRef("pod"))
		})
	}
}

// R30: an owner in foreground deletion waits for an object with many owners, at any place in the list, which is detached
// from it.
func TestR30_ForegroundOwnerOfAnObjectWithManyOwners(t *testing.T) {
	for _, n := range []int{0, manyOwners / 2, manyOwners - 1} {
		w := newFixture(t)
		withManyOwners(w, blocking)
		w.Remove(setRef(fmt.Sprint("owner-", n)), foreground)
		w.settle()
		w.mustBeGone(setRef(fmt.Sprint("owner-", n)))
		w.mustHaveOwnersOf("pod", manyOwners-1)
	}
}

// R30: all owners are deleted in foreground, and the object hangs: it holds each of them.
func TestR30_HangingObjectHoldsAllItsOwners(t *testing.T) {
	w := newFixture(t)
	withManyOwners(w, blocking)
	w.Update(podRef("pod"), addFinalizer("example.com/own"))
	for n := range manyOwners {
		w.Remove(setRef(fmt.Sprint("owner-", n)), foreground)
	}
	w.settle()
	if got := w.Count("patch finalizers"); got != 0 {
		t.Fatalf("%d finalizers removed too early", got)
	}
	w.Update(podRef("pod"), removeFinalizer("example.com/own"))
	w.settle()
	w.mustBeGone(podRef("pod"))
	for n := range manyOwners {
		w.mustBeGone(setRef(fmt.Sprint("owner-", n)))
	}
}

// R30: an owner that orphans its dependents is removed from any place in the list, and nothing else is.
func TestR30_OrphanedObjectKeepsItsOtherOwners(t *testing.T) {
	for _, n := range []int{0, manyOwners / 2, manyOwners - 1} {
		w := newFixture(t)
		withManyOwners(w, asItIs)
		w.Remove(setRef(fmt.Sprint("owner-", n)), orphan)
		w.settle()
		w.mustBeGone(setRef(fmt.Sprint("owner-", n)))
		w.mustHaveOwnersOf("pod", manyOwners-1)
	}
}

// R30: an object that the watch has not shown as it is now holds its owner's deletion, as any other (R15).
func TestR30_LaggingObjectWithManyOwnersIsNotMissed(t *testing.T) {
	for _, policy := range []func(*fixture){
		func(w *fixture) { w.Remove(setRef("late"), foreground) },
		func(w *fixture) { w.Remove(setRef("late"), orphan) },
	} {
		w := newFixture(t)
		late := w.set("late")
		withManyOwners(w, asItIs)
		w.Hold(podKind)
		w.Update(podRef("pod"), addOwner(blocking(ownedBy(late))))
		policy(w)
		w.settle()
		w.Unhold(podKind)
		w.settle()
		w.mustBeGone(setRef("late"))
		w.mustHaveOwnersOf("pod", manyOwners)
	}
}

// R30: an object with many owners whose other state the graph does not keep costs nothing while nothing happens to it.
func TestR30_SettledObjectWithManyOwnersIsNotRead(t *testing.T) {
	w := newFixtureWith(t, collector.Config{References: 4})
	withManyOwners(w, asItIs)
	before := w.Count("")
	for range 5 {
		w.Update(podRef("pod"), addFinalizer("example.com/own"))
		w.Update(podRef("pod"), removeFinalizer("example.com/own"))
		w.settle()
	}
	if got := w.Count("") - before; got != 0 {
		t.Errorf("%d requests for an object whose owners all stand", got)
	}
}

// R30: an object is read again, less and less often, as long as a live read shows an owner that no watch has shown (R7).
func TestR30_UnobservedOwnersOfAnObjectWithManyOwners(t *testing.T) {
	w := newFixture(t)
	w.Hold(setKind)
	var owners []ownership.Reference
	for n := range manyOwners {
		owners = append(owners, ownedBy(w.set(fmt.Sprint("owner-", n))))
	}
	pod := w.pod("pod", owners...)
	if outcome := w.collect(pod.UID); outcome.Next != collector.Retry {
		t.Errorf("the owners are not observed, and the outcome is %+v", outcome)
	}
	w.mustHaveOwnersOf("pod", manyOwners)
	for n := range manyOwners {
		w.Remove(setRef(fmt.Sprint("owner-", n)), background)
	}
	w.collect(pod.UID)
	w.mustBeGone(podRef("pod"))
}

// R30, H9: an object that waits for a kind to be served (R7) is read once, and not after each of its changes, until its
// list of owners changes or the kind is served.
func TestR30_ParkedObjectWithManyOwnersIsNotReadAgain(t *testing.T) {
	for name, event := range map[string]func(w *fixture){
		"the kind is served": func(w *fixture) { w.Serve(widgetKind, ownership.Namespaced) },
		"the list changes": func(w *fixture) {
			w.Update(podRef("pod"), func(o *ownership.Object) { o.Owners = o.Owners[:manyOwners] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixtureWith(t, collector.Config{References: 4})
			var owners []ownership.Reference
			for n := range manyOwners {
				owners = append(owners, ownership.Reference{APIVersion: "apps/v1", Kind: setKind.Kind, Name: "gone", UID: ownership.UID(fmt.Sprint("gone-", n))})
			}
			w.pod("pod", append(owners, ownership.Reference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"})...)
			w.settle()
			before := w.Count("")
			for range 5 {
				w.Update(podRef("pod"), addFinalizer("example.com/own"))
				w.Update(podRef("pod"), removeFinalizer("example.com/own"))
				w.settle()
			}
			if got := w.Count("") - before; got != 0 {
				t.Errorf("%d requests for a parked object", got)
			}
			w.mustExist(podRef("pod"))
			event(w)
			w.settle()
			w.mustBeGone(podRef("pod"))
		})
	}
}

// R13: an object with many owners is detached from an orphaning one that it names under a kind that is not served, or
// cannot be read, at any place in the list.
func TestR13_ManyOwnersOneUnderAnotherKind(t *testing.T) {
	for group, isServed := range map[string]bool{"extensions": false, "metrics.k8s.io": true} {
		for _, n := range []int{0, manyOwners / 2, manyOwners - 1} {
			t.Run(fmt.Sprint(group, " ", n), func(t *testing.T) {
				w := newFixture(t)
				if isServed {
					kind := ownership.Kind{Group: group, Kind: setKind.Kind}
					w.Serve(kind, ownership.Namespaced)
					w.Inject(apimodel.Fault{Verb: "get", Kind: kind, Err: errors.New("metrics-server is down")})
				}
				var owners []ownership.Reference
				for i := range manyOwners {
					owners = append(owners, ownedBy(w.set(fmt.Sprint("owner-", i))))
				}
				owners[n].APIVersion = group + "/v1beta1"
				w.pod("pod", owners...)
				w.try(3)
				w.Remove(setRef(fmt.Sprint("owner-", n)), orphan)
				w.try(5)
				w.mustBeGone(setRef(fmt.Sprint("owner-", n)))
				w.mustHaveOwnersOf("pod", manyOwners-1)
			})
		}
	}
}
