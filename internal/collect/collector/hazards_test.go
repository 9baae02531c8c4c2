package collector_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// Hazards that concern the collector, replayed. Each was observed on kube-controller-manager.

// H1: the orphan finalizer of a recreated owner was removed on behalf of the
// owner that had its name before; the new one's dependent was then deleted.
func TestH1FinalizerOfRecreatedOwnerStays(t *testing.T) {
	w := newFixture(t)
	w.set("web")
	w.Hold(setKind, podKind)
	w.Remove(setRef("web"), orphan)
	w.Step() // held: nothing is observed of what follows
	w.Update(setRef("web"), removeFinalizer(ownership.FinalizerOrphan))
	w.mustBeGone(setRef("web"))

	again := w.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web", UID: "web-2"})
	w.pod("pod", ownedBy(again))
	w.Remove(setRef("web"), orphan)

	// The collector observes the first owner's deletion only.
	w.c.Sink().Observe(ownership.Object{
		UID: "web", Kind: setKind, Namespace: space, Name: "web", ResourceVersion: "6",
		Phase: ownership.Orphaning, Finalizers: []string{ownership.FinalizerOrphan},
	})
	w.settle()
	now, _ := w.Lookup(setRef("web"))
	if diff := cmp.Diff([]string{ownership.FinalizerOrphan}, now.Finalizers); diff != "" || now.UID != "web-2" {
		t.Fatalf("uid %s, finalizers (-want +got):\n%s", now.UID, diff)
	}
	if w.Count("patch finalizers") == 0 {
		t.Error("the hazard was not met: no attempt to remove a finalizer")
	}

	w.Unhold(setKind, podKind)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("pod")) // orphaned, not deleted
}

// H2: orphaning a dependent stripped the owner reference from a recreated object of the same
// name.
func TestH2OwnersOfRecreatedDependentStay(t *testing.T) {
	w := newFixture(t)
	web, live := w.set("web"), w.set("live")
	w.pod("pod", ownedBy(web))
	w.Hold(podKind)
	w.Remove(podRef("pod"), background)
	w.Create(ownership.Object{
		Kind: podKind, Namespace: space, Name: "pod", UID: "pod-2", Owners: []ownership.Reference{ownedBy(live)},
	})
	w.Remove(setRef("web"), orphan)
	w.settle()

	if w.Count("patch owners") == 0 {
		t.Error("the hazard was not met: no attempt to detach")
	}
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("pod"), "live")
	w.Unhold(podKind)
	w.settle()
	w.mustHaveOwners(podRef("pod"), "live")
}

// H3a: a user detached an object; a patch computed from an older observation put the
// reference back, and the object was deleted for it. Here for both writes of owner
// references.
func TestH3aReferenceRemovedByUserStaysRemoved(t *testing.T) {
	t.Run("detach", func(t *testing.T) {
		w := newFixture(t)
		held, leaving, doomed := w.set("held"), w.set("leaving"), w.set("doomed")
		w.pod("pod", ownedBy(held), ownedBy(leaving), ownedBy(doomed))
		w.onRequest("patch owners", 1, func() { w.Update(podRef("pod"), removeOwner("leaving")) })
		w.Hold(podKind)
		w.Remove(setRef("doomed"), background)
		w.settle()
		w.mustHaveOwners(podRef("pod"), "held")
		w.Remove(setRef("leaving"), background)
		w.Unhold(podKind)
		w.settle()
		w.mustHaveOwners(podRef("pod"), "held")
	})
	t.Run("unblock", func(t *testing.T) {
		w := newFixture(t)
		a := ownership.Object{Kind: setKind, Name: "a", UID: "a"}
		b := w.set("b", blocking(ownedBy(a)))
		w.set("a", blocking(ownedBy(b)))
		w.settle()
		w.Update(setRef("a"), addFinalizer("example.com/own")) // so that it can be looked at
		w.onRequest("patch owners", 1, func() { w.Update(setRef("a"), removeOwner("b")) })
		w.Remove(setRef("a"), foreground)
		w.Hold(setKind)
		w.Remove(setRef("b"), foreground)
		w.Unhold(setKind)
		w.settle()
		w.mustHaveOwners(setRef("a"))
		w.mustBeGone(setRef("b"))
	})
}

// H3b: a live owner adopted an object; a patch computed from an older observation removed
// that owner, and the object was deleted for it.
func TestH3bAdoptionIsNotErased(t *testing.T) {
	t.Run("detach", func(t *testing.T) {
		w := newFixture(t)
		held, doomed, adopter := w.set("held"), w.set("doomed"), w.set("adopter")
		w.pod("pod", ownedBy(held), ownedBy(doomed))
		w.onRequest("patch owners", 1, func() { w.Update(podRef("pod"), addOwner(ownedBy(adopter))) })
		w.Hold(podKind)
		w.Remove(setRef("doomed"), background)
		w.settle()
		w.mustHaveOwners(podRef("pod"), "held", "adopter")
		w.Remove(setRef("held"), background)
		w.Unhold(podKind)
		w.settle()
		w.mustHaveOwners(podRef("pod"), "adopter")
	})
	t.Run("disown", func(t *testing.T) {
		w := newFixture(t)
		web, adopter := w.set("web"), w.set("adopter")
		w.pod("pod", ownedBy(web))
		w.onRequest("patch owners", 1, func() { w.Update(podRef("pod"), addOwner(ownedBy(adopter))) })
		w.Hold(podKind)
		w.Remove(setRef("web"), orphan)
		w.settle()
		w.mustBeGone(setRef("web"))
		w.mustHaveOwners(podRef("pod"), "adopter")
	})
}

// H4: a removed owner came back with a restored backup, under its UID; its dependent was deleted
// because of observations from before the restore.
func TestH4RestoredOwnerKeepsItsDependents(t *testing.T) {
	for _, evidence := range []string{"event", "live read"} {
		t.Run(evidence, func(t *testing.T) {
			w := newFixture(t)
			web := w.set("web")
			w.pod("pod", ownedBy(web))
			backup := w.Backup()
			w.Update(podRef("pod"), addFinalizer("example.com/own")) // something that stays, and claims the owner
			w.pod("witness", ownedBy(w.set("held")), ownedBy(web))
			if evidence == "live read" {
				w.Hold(setKind)
			}
			w.Inject(apimodel.Fault{Verb: "patch owners", Err: errForbidden})
			w.Inject(apimodel.Fault{Verb: "delete", Err: errForbidden})
			w.Remove(setRef("web"), background)
			if evidence == "live read" {
				feed.Replace(w.c.Sink(), setKind, nil)
			}
			w.try(3)
			if w.Count("patch owners")+w.Count("delete") == 0 {
				t.Fatal("the absence of the owner is not known")
			}

			// The backup is restored. The watch of the dependents is resumed first.
			w.Heal()
			w.Hold(setKind)
			w.Restore(backup, 0)
			w.Relist(podKind)
			w.try(3)
			w.mustExist(podRef("pod"))
			w.mustHaveOwners(podRef("pod"), "web")
			w.Unhold(setKind)
			w.Relist(setKind)
			w.settle()
			w.mustExist(podRef("pod"))
			w.mustHaveOwners(podRef("pod"), "web")

			// The collector decides on the state after the restore.
			w.Remove(setRef("web"), background)
			w.settle()
			w.mustBeGone(podRef("pod"))
		})
	}
}

// R4: a live read that is older than an observation is a sign as well. And writes from before the
// restore do not count.
func TestR4_LiveReadTellsOfAnEarlierTime(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("pod", ownedBy(web))
	backup := w.Backup()
	w.Hold(podKind, setKind)
	w.Remove(setRef("web"), background)
	w.c.Sink().Forget("web", "99")
	w.keys.waiting = nil
	// The watches do not notice the restored backup, and show the pod as it was after.
	w.Restore(backup, 0)
	w.c.Sink().Observe(ownership.Object{
		UID: "pod", Kind: podKind, Namespace: space, Name: "pod", ResourceVersion: "98",
		Owners: []ownership.Reference{ownedBy(web)},
	})
	w.c.Sink().Forget("web", "99")
	w.try(5)
	w.mustExist(podRef("pod"), setRef("web"))
	if got := w.Count("delete"); got != 1 {
		t.Errorf("%d DELETEs, want one that is refused", got)
	}
	if !strings.Contains(w.logs.String(), "went back in time") {
		t.Error("nothing in the log about it")
	}
}

// R4: a live read that was under way when the epoch ended is no evidence.
func TestR4_AnswerFromBeforeIsNoEvidence(t *testing.T) {
	w := newFixture(t)
	w.Hold(setKind)
	w.pod("pod", absent("web"))
	backup := w.Backup()
	w.onRequest("get", 1, func() { w.Restore(backup, 0) })
	uid, _ := w.keys.Take()
	w.collect(uid)
	if got := w.c.Stats().Delete; got != 0 {
		t.Fatal("decided by an answer from before the restore")
	}
	w.settle()
	w.mustBeGone(podRef("pod"))
	if got := w.Count("get"); got != 2 {
		t.Errorf("%d reads, want 2", got)
	}
}

// R4: an owner's phase is not trusted after a restore. The owners are read in portions, until the
// last of them is known to exist.
func TestR4_UndoneDeletionsAreNotBelieved(t *testing.T) {
	const owners = 40
	w := newFixtureWith(t, collector.Config{References: owners})
	var all []ownership.Reference
	for i := range owners {
		all = append(all, blocking(ownedBy(w.set(fmt.Sprint("web-", i)))))
	}
	w.pod("pod", all...)
	backup := w.Backup()
	for i := range owners {
		w.Remove(setRef(fmt.Sprint("web-", i)), foreground)
	}
	w.Restore(backup, 10) // and no kind is listed again
	pod, _ := w.Lookup(podRef("pod"))
	w.collect(pod.UID)
	if got := w.Count("get"); got == 0 || got == owners {
		t.Errorf("%d reads at once, want a portion of %d", got, owners)
	}
	w.settle()
	w.mustExist(podRef("pod"))
	if got := w.Count("get"); got != owners {
		t.Errorf("%d reads, want one of each of %d owners", got, owners)
	}
	if got := w.Count("delete") + w.Count("patch owners"); got != 0 {
		t.Errorf("%d writes to what the restore has brought back", got)
	}
}

// R4: a backup is restored while the dependents of an owner are detached: its deletion may be undone, so that the others
// keep their references. Only the PATCH that was under way is carried out.
func TestR4_UndoneOrphaningStops(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	for i := range 5 {
		w.pod(fmt.Sprint("pod-", i), ownedBy(web))
	}
	backup := w.Backup()
	w.onRequest("patch owners", 2, func() {
		w.Restore(backup, 10)
		w.Relist(setKind) // the owner is known again, and is not deleted
	})
	w.Remove(setRef("web"), orphan)
	w.settle()
	w.mustExist(setRef("web"))
	for _, i := range []int{0, 2, 3, 4} {
		w.mustHaveOwners(podRef(fmt.Sprint("pod-", i)), "web")
	}
}

// R4: a proof of the barrier is valid in its epoch only.
func TestR4_ProofFromBeforeProvesNothing(t *testing.T) {
	w := newFixture(t)
	w.set("web")
	w.Remove(setRef("web"), foreground)
	backup := w.Backup()
	uid, _ := w.keys.Take()
	w.collect(uid) // proven
	w.Restore(backup, 10)
	w.Relist(setKind)
	before := w.lists()
	w.settle()
	w.mustBeGone(setRef("web"))
	if got := w.lists() - before; got != 2 {
		t.Errorf("%d lists, want 2", got)
	}
}

// H5: an object was adopted by a live owner between the read that followed a
// conflict and the second DELETE, which had dropped its resourceVersion.
func TestH5AdoptionBeforeSecondDelete(t *testing.T) {
	w := newFixture(t)
	web, adopter := w.set("web"), w.set("adopter")
	w.pod("pod", ownedBy(web))
	w.Hold(podKind)
	w.onRequest("delete", 1, func() { w.Update(podRef("pod"), addFinalizer("example.com/own")) })
	w.onRequest("delete", 2, func() { w.Update(podRef("pod"), addOwner(ownedBy(adopter))) })
	w.Remove(setRef("web"), background)
	w.settle()

	w.mustHaveRequested("delete", "get", "delete", "get", "patch owners")
	w.mustHaveOwners(podRef("pod"), "adopter")
	pod, _ := w.Lookup(podRef("pod"))
	if pod.Phase != ownership.Active {
		t.Errorf("phase = %v, want active", pod.Phase)
	}
	for _, r := range w.Requests() {
		if r.Verb != "get" && (r.UID == "" || r.ResourceVersion == "") {
			t.Errorf("%s without condition", r.Verb)
		}
	}
}
