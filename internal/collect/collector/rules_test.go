package collector_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

var (
	errTimeout   = apierrors.NewTimeoutError("no answer", 0)
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", errors.New("no"))
)

// The common case: one DELETE, conditioned on the observation, and nothing read (CF-01).
func TestOneRequestCollects(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	pod := w.pod("pod", ownedBy(web))
	w.settle()
	w.Remove(setRef("web"), background)
	w.settle()

	w.mustBeGone(podRef("pod"))
	want := []apimodel.Request{{
		Verb: "delete", Ref: podRef("pod"), UID: "pod", ResourceVersion: pod.ResourceVersion, Propagation: background,
	}}
	if diff := cmp.Diff(want, w.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := strings.Count(w.logs.String(), "level=INFO msg=collected"); got != 1 {
		t.Errorf("%d Info lines about it, want 1", got)
	}
}

// A request is not repeated while the watch lags.
func TestNoSecondRequestWhileTheWatchLags(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("pod", ownedBy(web))
	w.Hold(podKind)
	w.Remove(setRef("web"), background)
	w.settle()
	for range 3 {
		w.keys.Add("pod")
		w.settle()
	}
	w.mustHaveRequested("delete")
	w.Unhold(podKind)
	w.settle()
	w.mustHaveRequested("delete")
}

// CF-04.
func TestR12_ConflictIsReadLiveAndDecidedAgain(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("pod", ownedBy(web))
	w.Hold(podKind)
	now := w.Update(podRef("pod"), addFinalizer("example.com/own")) // not observed
	w.Remove(setRef("web"), background)
	w.settle()

	w.mustHaveRequested("delete", "get", "delete")
	if got := w.Requests()[2].ResourceVersion; got != now.ResourceVersion {
		t.Errorf("second DELETE is conditioned on %s, want %s, the version that was read", got, now.ResourceVersion)
	}
	pod, _ := w.Lookup(podRef("pod"))
	if pod.Phase != ownership.Terminating {
		t.Errorf("phase = %v, want terminating", pod.Phase)
	}
}

// An object that changes before each write: some tries at once, then back-off.
func TestR12_HotObjectBacksOff(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("pod", ownedBy(web))
	n := 0
	w.Before(func(r apimodel.Request) {
		if r.Verb == "delete" && n < 7 {
			n++
			w.Update(podRef("pod"), func(o *ownership.Object) { o.Finalizers = []string{fmt.Sprint("example.com/", n)} })
		}
	})
	w.Remove(setRef("web"), background)
	w.keys.Take()
	if got := w.collect("pod"); got.Next != collector.Retry || w.Count("delete") != 5 {
		t.Fatalf("outcome = %+v after %d DELETEs, want retry after 5", got, w.Count("delete"))
	}
	if got := w.c.Stats().Hot; got != 1 {
		t.Errorf("Hot = %d, want 1", got)
	}
	if got := w.collect("pod"); got.Next != collector.Settled || w.Count("delete") != 8 {
		t.Errorf("outcome = %+v after %d DELETEs, want settled after 8", got, w.Count("delete"))
	}
}

// T10: the request is carried out, but its answer is lost.
func TestR12_LostAnswers(t *testing.T) {
	tests := map[string]struct {
		verb    string
		prepare func(w *fixture)
		after   func(w *fixture)
	}{
		"delete": {"delete", func(w *fixture) {
			w.pod("pod", absent("web"))
		}, func(w *fixture) { w.mustBeGone(podRef("pod")) }},
		"delete, stays": {"delete", func(w *fixture) {
			w.pod("pod", absent("web"))
			w.Update(podRef("pod"), addFinalizer("example.com/own"))
		}, func(w *fixture) {
			w.Update(podRef("pod"), removeFinalizer("example.com/own"))
			w.mustBeGone(podRef("pod"))
		}},
		"detach": {"patch owners", func(w *fixture) {
			w.pod("pod", absent("web"), ownedBy(w.set("held")))
		}, func(w *fixture) { w.mustHaveOwners(podRef("pod"), "held") }},
		"disown": {"patch owners", func(w *fixture) {
			w.pod("pod", ownedBy(w.set("web")))
			w.Remove(setRef("web"), orphan)
		}, func(w *fixture) { w.mustHaveOwners(podRef("pod")); w.mustBeGone(setRef("web")) }},
		"remove finalizer": {"patch finalizers", func(w *fixture) {
			w.set("web")
			w.Remove(setRef("web"), foreground)
		}, func(w *fixture) { w.mustBeGone(setRef("web")) }},
	}
	for name, test := range tests {
		for _, lag := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lag %v", name, lag), func(t *testing.T) {
				w := newFixture(t)
				w.Inject(apimodel.Fault{Verb: test.verb, Times: 1, Err: errTimeout, Committed: true})
				test.prepare(w)
				if lag {
					w.Hold(podKind, setKind)
				}
				w.settle()
				w.Unhold(podKind, setKind)
				w.settle()
				test.after(w)
			})
		}
	}
}

func TestR12_FailedRequestIsRetried(t *testing.T) {
	for name, err := range map[string]error{
		"timeout": errTimeout, "forbidden": errForbidden, "internal": apierrors.NewInternalError(errors.New("broken")),
		"invalid":     apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "pod", nil),
		"unavailable": apierrors.NewServiceUnavailable("away"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.Inject(apimodel.Fault{Verb: "delete", Times: 3, Err: err})
			w.pod("pod", absent("web"))
			w.settle()
			w.mustBeGone(podRef("pod"))
			if got := w.Count("delete"); got != 4 {
				t.Errorf("%d DELETEs, want 4", got)
			}
		})
	}
}

// A write that is refused as invalid although the object is the same would be refused again:
// the object is read once to check that, and then backs off.
func TestR12_InvalidIsNotRepeatedAtOnce(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("pod", ownedBy(web))
	w.Inject(apimodel.Fault{Verb: "delete", Err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "pod", nil)})
	w.Remove(setRef("web"), background)
	w.keys.Take()
	if got := w.collect("pod"); got.Next != collector.Retry {
		t.Errorf("outcome = %+v, want retry", got)
	}
	w.mustHaveRequested("delete", "get")
}

func TestR12_ThrottledRequestWaitsAsToldTo(t *testing.T) {
	w := newFixture(t)
	w.pod("pod", absent("web"))
	w.Inject(apimodel.Fault{Verb: "delete", Times: 1, Err: apierrors.NewTooManyRequests("slow down", 7)})
	w.keys.Take()
	w.collect("pod") // verifies
	if got := w.collect("pod"); got.Next != collector.Later || got.After != 7*time.Second {
		t.Errorf("outcome = %+v, want later, after 7s", got)
	}
}

// After a DELETE that finds nothing the object stays known until its DELETED event (CF-02).
func TestR12_NotFoundSettles(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("pod", ownedBy(web))
	w.set("below", ownedBy(ownership.Object{Kind: podKind, Name: "pod", UID: "pod"}))
	w.Hold(podKind)
	w.Remove(podRef("pod"), background) // not observed
	w.Remove(setRef("web"), background)
	w.settle()
	w.keys.Add("pod")
	w.settle()
	w.mustHaveRequested("delete")
	w.mustExist(setRef("below"))

	w.Unhold(podKind)
	w.settle()
	w.mustBeGone(setRef("below"))
	w.mustHaveRequested("delete", "delete")
}

func TestTwoOwnersOneDeleted(t *testing.T) {
	w := newFixture(t)
	web, canary := w.set("web"), w.set("canary")
	kept := ownedBy(canary)
	kept.Controller = ownership.False
	w.pod("pod", ownedBy(web), kept)
	w.Remove(setRef("web"), background)
	w.settle()

	w.mustHaveRequested("patch owners")
	pod, _ := w.Lookup(podRef("pod"))
	if diff := cmp.Diff([]ownership.Reference{kept}, pod.Owners); diff != "" || pod.Phase != ownership.Active {
		t.Errorf("phase %v, owners (-want +got):\n%s", pod.Phase, diff)
	}
}

// The answer to a patch counts: nothing is computed from an older observation.
func TestR12_AnswerToPatchIsTakenIn(t *testing.T) {
	w := newFixture(t)
	web, canary := w.set("web"), w.set("canary")
	w.pod("pod", ownedBy(web), ownedBy(canary))
	w.Hold(podKind)
	w.Remove(setRef("web"), background)
	w.settle()
	w.Remove(setRef("canary"), background)
	w.settle()
	w.mustHaveRequested("patch owners", "delete")
	w.mustBeGone(podRef("pod"))
}

func TestR13_OrphanedDependentsLoseOneReferenceAndStay(t *testing.T) {
	w := newFixture(t)
	web, canary := w.set("web"), w.set("canary")
	w.pod("a", ownedBy(web))
	w.pod("b", blocking(ownedBy(web)), ownedBy(canary))
	w.pod("c", ownedBy(web))
	w.Remove(setRef("web"), orphan)
	w.settle()

	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("a"))
	w.mustHaveOwners(podRef("b"), "canary")
	w.mustHaveOwners(podRef("c"))
	w.mustHaveRequested("patch owners", "patch owners", "patch owners", "survey", "list", "list", "patch finalizers")
}

// The answers to the patches count: the owner does not wait for the watch of its dependents.
// (OR-07).
func TestR13_WatchOfDependentsLags(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("a", ownedBy(web))
	w.pod("b", ownedBy(web))
	w.Hold(podKind)
	w.Remove(setRef("web"), orphan)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustHaveRequested("patch owners", "patch owners", "survey", "list", "list", "patch finalizers")
}

// A dependent that appears while the others are detached is detached too.
func TestR13_AgainUntilNoneIsFound(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("a", ownedBy(web))
	w.onRequest("patch owners", 1, func() { w.pod("late", ownedBy(web)) })
	w.onRequest("patch owners", 2, func() { w.pod("later", ownedBy(web)) })
	w.Remove(setRef("web"), orphan)
	w.settle()

	w.mustBeGone(setRef("web"))
	for _, name := range []string{"a", "late", "later"} {
		w.mustHaveOwners(podRef(name))
	}
}

// CF-07: while one dependent cannot be detached the owner keeps its finalizer.
func TestR13_FailureKeepsTheFinalizer(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("a", ownedBy(web))
	w.pod("b", ownedBy(web))
	w.Inject(apimodel.Fault{Verb: "patch owners", Ref: podRef("a"), Err: errForbidden})
	w.Remove(setRef("web"), orphan)
	w.drain()

	w.mustExist(setRef("web"))
	w.mustHaveOwners(podRef("a"), "web")
	w.mustHaveOwners(podRef("b")) // one dependent that fails holds no other

	w.Heal()
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("a"))
}

// A server that answers a detachment with 200, and keeps the reference, gets the next one after a back-off.
func TestR13_ReferenceThatTheServerKeeps(t *testing.T) {
	w := newFixture(t)
	web := w.set("web")
	w.pod("a", ownedBy(web))
	w.KeepOwners()
	w.Remove(setRef("web"), orphan)
	w.drain()
	if got := w.Count("patch owners"); got != 1 {
		t.Errorf("%d patches without a back-off", got)
	}
	w.mustExist(setRef("web"))
}

// GB-05.
func TestR13_DependentThatChangesOrGoes(t *testing.T) {
	w := newFixture(t)
	web, live := w.set("web"), w.set("live")
	w.pod("changed", ownedBy(web))
	w.pod("gone", ownedBy(web))
	w.Hold(podKind)
	w.Update(podRef("changed"), addOwner(ownedBy(live)))
	w.Remove(podRef("gone"), background)
	w.Remove(setRef("web"), orphan)
	w.settle()

	w.mustBeGone(setRef("web"), podRef("gone"))
	w.mustHaveOwners(podRef("changed"), "live")
}

// R16: the collector removes its own finalizers only; the model refuses anything else.
func TestR16_ForeignFinalizersStay(t *testing.T) {
	w := newFixture(t)
	w.set("web")
	w.Update(setRef("web"), func(o *ownership.Object) { o.Finalizers = []string{"example.com/a", "example.com/b"} })
	w.Remove(setRef("web"), orphan)
	w.settle()
	web, _ := w.Lookup(setRef("web"))
	if diff := cmp.Diff([]string{"example.com/a", "example.com/b"}, web.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
}
