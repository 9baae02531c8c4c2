package collector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

var widgetKind = ownership.Kind{Group: "example.com", Kind: "Widget"}

// try lets the collector work for some time, back-off included. With a held owner settle would
// not end.
func (w *fixture) try(times int) {
	w.t.Helper()
	for range times {
		w.drain()
		w.keys.backoffOver()
	}
}

func (w *fixture) lists() int { return w.Count("list") }

// OR-07: dependents whose watch lags are not lost, and are not deleted after.
func TestR15_OrphanWaitsForTheWatchOfItsDependents(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.Hold(podKind)
	w.pod("pod", ownedBy(web))
	w.Remove(setRef("web"), orphan)
	w.try(3)
	w.mustExist(setRef("web"))
	if n := w.Count("patch finalizers"); n != 0 {
		t.Fatal("the finalizer was removed, although a dependent was not seen")
	}

	w.Unhold(podKind)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("pod"))
	if n := w.Count("delete"); n != 0 {
		t.Errorf("%d DELETEs, want none", n)
	}
}

// R15 in the foreground: the owner is not removed before a dependent that blocks.
func TestR15_ForegroundWaitsForTheWatchOfItsDependents(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.Hold(podKind)
	w.pod("pod", blocking(ownedBy(web)))
	w.Remove(setRef("web"), foreground)
	w.onRequest("patch finalizers", 1, func() { w.mustBeGone(podRef("pod")) })
	w.try(3)
	w.mustExist(setRef("web"), podRef("pod"))
	w.Unhold(podKind)
	w.settle()
	w.mustBeGone(setRef("web"), podRef("pod"))
}

// A dependent that does not block does not hold the owner, seen or not.
func TestR15_ForegroundDoesNotWaitForOthers(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.Hold(podKind)
	w.pod("pod", ownedBy(web))
	w.Remove(setRef("web"), foreground)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.Unhold(podKind)
	w.settle()
	w.mustBeGone(podRef("pod"))
}

// An object that is known, but not as a dependent: the list shows that, without waiting for the
// watch.
func TestR15_ListTellsOfAdoption(t *testing.T) {
	for name, policy := range map[string]propagation{"orphan": orphan, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			web := w.set("web")
			w.pod("pod")
			w.settle()
			w.Hold(podKind)
			w.Update(podRef("pod"), addOwner(blocking(ownedBy(web))))
			w.Remove(setRef("web"), policy)
			if policy == foreground {
				w.onRequest("patch finalizers", 1, func() { w.mustBeGone(podRef("pod")) })
				w.try(2)
				w.mustBeGone(podRef("pod"))
				w.Unhold(podKind)
			}
			w.settle()
			w.mustBeGone(setRef("web"))
			if policy == orphan {
				w.mustHaveOwners(podRef("pod"))
			}
		})
	}
}

// H6: the collector starts while a kind cannot be read. The orphan deletion of an owner waits,
// reports the kind, and completes when the kind is repaired.
func TestH6UnlistableKindHoldsOrphaning(t *testing.T) {
	events := &eventLog{}
	w := newFixtureWith(t, collector.Config{Events: events})
	w.Hold(widgetKind) // its monitor has never got a list
	w.Inject(apimodel.Fault{Kind: widgetKind, Err: apierrors.NewInternalError(errors.New("conversion webhook"))})
	w.Serve(widgetKind, ownership.Namespaced)
	web := w.set("web")
	widget := w.Create(ownership.Object{Kind: widgetKind, Namespace: space, Name: "w", UID: "w", Owners: []ownership.Reference{ownedBy(web)}})
	w.pod("pod", ownedBy(web))
	w.Remove(setRef("web"), orphan)
	w.try(10)
	w.mustExist(setRef("web"))
	w.mustHaveOwners(podRef("pod")) // what can be done is done
	if len(events.lines) != 1 || !strings.Contains(events.lines[0], "ReplicaSet.apps shop/web GarbageCollectionBlocked: finalizer orphan is kept") ||
		!strings.Contains(events.lines[0], "Widget.example.com: cannot be listed: ") {
		t.Errorf("events = %q, want one that names the kind", events.lines)
	}

	// It holds nothing else.
	w.pod("other", absent("never"))
	w.drain()
	w.mustBeGone(podRef("other"))

	w.Heal()
	w.Unhold(widgetKind)
	w.Relist(widgetKind) // the monitor gets through, and the owner comes back at once
	w.drain()
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(client.RefOf(widget))
}

// A kind that cannot be read holds only owners that could have dependents of it.
func TestR15_BrokenKindHoldsNobodyElse(t *testing.T) {
	w := newFixture(t)
	w.Inject(apimodel.Fault{Verb: "list", Kind: nodeKind, Err: errForbidden})
	node := w.Create(ownership.Object{Kind: nodeKind, Name: "n", UID: "n"})
	w.set("web")
	w.Remove(setRef("web"), foreground)
	w.Remove(client.RefOf(node), foreground)
	w.try(3)
	w.mustBeGone(setRef("web"))
	w.mustExist(client.RefOf(node))
	w.Heal()
	w.settle()
	w.mustBeGone(client.RefOf(node))
}

// Proofs stay valid: only a kind that holds an owner is read again.
func TestR15_OnlyWhatIsOpenIsReadAgain(t *testing.T) {
	w := newFixture(t)
	w.Serve(widgetKind, ownership.Namespaced)
	w.Inject(apimodel.Fault{Verb: "list", Kind: widgetKind, Err: errForbidden})
	w.set("web")
	w.Remove(setRef("web"), foreground)
	w.drain()
	if got := w.lists(); got != 3 {
		t.Fatalf("%d lists, want one for each of three kinds", got)
	}
	w.try(5)
	if got := w.lists(); got > 3+5 {
		t.Errorf("%d lists, want one more for each try", got)
	}
	// A kind that joins meanwhile is read, too.
	w.Serve(ownership.Kind{Kind: "Service"}, ownership.Namespaced)
	w.Heal()
	w.settle()
	w.mustBeGone(setRef("web"))
	last := w.Requests()[len(w.Requests())-3:]
	if last[0].Ref.Kind.Kind != "Service" || last[1].Ref.Kind != widgetKind {
		t.Errorf("last requests = %+v, want the lists of Service and Widget, then the removal of the finalizer", last)
	}
}

// A group whose discovery fails may serve dependents: it holds all owners.
func TestR15_UndiscoveredGroupHolds(t *testing.T) {
	w := newFixture(t)
	w.Undiscovered("metrics.example.com/v1")
	w.set("web")
	w.Remove(setRef("web"), foreground)
	w.try(3)
	w.mustExist(setRef("web"))
	if !strings.Contains(w.logs.String(), "metrics.example.com/v1: its discovery fails") {
		t.Error("the log does not name it")
	}
	w.Undiscovered()
	w.settle()
	w.mustBeGone(setRef("web"))
}

// A failing discovery holds all owners, for as long as its Retry-After says.
func TestR15_DiscoveryThatFailsHolds(t *testing.T) {
	w := newFixture(t)
	w.Inject(apimodel.Fault{Verb: "survey", Err: apierrors.NewTooManyRequests("slow down", 7)})
	w.set("web")
	w.Remove(setRef("web"), foreground)
	uid, _ := w.keys.Take()
	w.collect(uid)
	if got := w.collect(uid); got.Next != collector.Later || got.After != 7*time.Second {
		t.Errorf("outcome = %+v, want later, after 7s", got)
	}
	if !strings.Contains(w.logs.String(), "discovery: slow down") {
		t.Error("the log does not say why")
	}
	w.mustExist(setRef("web"))
	w.Heal()
	w.settle()
	w.mustBeGone(setRef("web"))
}

// After a list that is throttled the owner waits for the time that the answer names.
func TestR15_ThrottledListWaitsAsToldTo(t *testing.T) {
	w := newFixture(t)
	w.Inject(apimodel.Fault{Verb: "list", Kind: podKind, Err: apierrors.NewTooManyRequests("slow down", 7)})
	w.set("web")
	w.Remove(setRef("web"), foreground)
	uid, _ := w.keys.Take()
	w.collect(uid)
	if got := w.collect(uid); got.Next != collector.Later || got.After != 7*time.Second {
		t.Errorf("outcome = %+v, want later, after 7s", got)
	}
}

// When many kinds hold an owner, only some are named.
func TestR15_MessageNamesAFew(t *testing.T) {
	w := newFixture(t)
	for i := range 8 {
		w.Serve(ownership.Kind{Group: "example.com", Kind: fmt.Sprint("Kind", i)}, ownership.Namespaced)
	}
	w.Inject(apimodel.Fault{Verb: "list", Err: errForbidden})
	w.set("web")
	w.Remove(setRef("web"), foreground)
	uid, _ := w.keys.Take()
	w.collect(uid)
	got := w.collect(uid).Err
	if got == nil || strings.Count(got.Error(), "cannot be listed") != 5 || !strings.HasSuffix(got.Error(), "; and 5 more") {
		t.Errorf("error = %v, want five kinds of ten", got)
	}
}

// A server of which no kinds are known proves nothing.
func TestR15_NothingKnownProvesNothing(t *testing.T) {
	w := newFixture(t)
	w.set("web")
	for _, kind := range []ownership.Kind{podKind, setKind, nodeKind} {
		w.Hold(kind)
	}
	blind := &blindServer{w.Server}
	c := collector.New(blind, collector.Config{Queue: w.keys, Workers: 1})
	w.Connect(c.Sink())
	feed.Replace(c.Sink(), setKind, []ownership.Object{{
		UID: "web", Kind: setKind, Namespace: space, Name: "web", ResourceVersion: "9",
		Phase: ownership.Foreground, Finalizers: []string{ownership.FinalizerForeground},
	}})
	for range 5 {
		c.Collect(t.Context(), "web")
	}
	if n := w.Count(""); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// R14: a finalizer that is put back needs a new proof.
func TestR15_EachCompletionHasItsOwnProof(t *testing.T) {
	w := newFixture(t)
	w.set("web")
	w.Update(setRef("web"), addFinalizer("example.com/own"))
	for range 2 {
		before := w.lists()
		w.Remove(setRef("web"), foreground)
		w.settle()
		if got := w.lists() - before; got != 2 {
			t.Errorf("%d lists, want one for each namespaced kind", got)
		}
	}
	// The other policy, too: an object that holds an orphan deletion need not block.
	w.Remove(setRef("web"), foreground)
	uid, _ := w.keys.Take()
	w.collect(uid) // proven
	w.Remove(setRef("web"), orphan)
	before := w.lists()
	w.settle()
	if got := w.lists() - before; got != 2 {
		t.Errorf("%d lists after a change of policy, want 2", got)
	}
}

// Observations after the proof count.
func TestR15_DependentThatComesAfterTheProof(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.Remove(setRef("web"), orphan)
	uid, _ := w.keys.Take()
	w.collect(uid) // proven
	w.pod("pod", ownedBy(web))
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("pod"))
}

// An owner that goes by itself leaves the barrier.
func TestR15_OwnerThatGoesIsNotReadFor(t *testing.T) {
	w := newFixture(t)
	w.Inject(apimodel.Fault{Verb: "list", Kind: podKind, Err: errForbidden})
	w.set("web")
	w.Remove(setRef("web"), foreground)
	w.try(2)
	w.Update(setRef("web"), removeFinalizer(ownership.FinalizerForeground))
	w.settle()
	before := w.lists()
	w.keys.Add("web")
	w.settle()
	if got := w.lists() - before; got != 0 {
		t.Errorf("%d lists for an owner that is gone", got)
	}
	if got := w.c.Status().Barrier; len(got) != 0 {
		t.Errorf("barrier = %+v, want no owner", got)
	}
}

// Status has each waiting owner and its holds.
func TestR15_StatusNamesWhatHolds(t *testing.T) {
	w := newFixture(t)
	w.Inject(apimodel.Fault{Verb: "list", Kind: podKind, Err: errForbidden})
	w.set("web")
	w.Remove(setRef("web"), foreground)
	w.try(2)
	got := w.c.Status().Barrier
	if len(got) != 1 {
		t.Fatalf("barrier = %+v, want one owner", got)
	}
	got[0].Since = time.Time{}
	want := report.BarrierWait{
		Owner: "ReplicaSet.apps shop/web", UID: "web", Finalizer: ownership.FinalizerForeground, Rounds: 2,
		Holds: []report.Hold{{What: "Pod", Why: "cannot be listed: " + errForbidden.Error()}},
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.ContainsFunc(w.Requests(), func(r apimodel.Request) bool { return r.Verb == "list" }) {
		t.Error("no list was made")
	}
}

// blindServer is one whose kinds are not known.
type blindServer struct{ *apimodel.Server }

func (*blindServer) Survey(context.Context) (feed.Watched, error) { return feed.Watched{}, nil }
