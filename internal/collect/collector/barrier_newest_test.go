package collector_test

import (
	"testing"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// R15 on a server that reports the last write of each kind.

func (w *fixture) mustList(what string, want int, kinds ...ownership.Kind) {
	w.t.Helper()
	var got int
	for _, r := range w.Requests() {
		for _, kind := range kinds {
			if r.Verb == "list" && r.Ref.Kind == kind {
				got++
			}
		}
	}
	if got != want {
		w.t.Errorf("%s: %d lists of %v, want %d", what, got, kinds, want)
	}
}

// Kinds whose watch has caught up are not listed.
func TestR15_NoListsWhereTheWatchIsUpToDate(t *testing.T) {
	for name, policy := range map[string]propagation{"orphan": orphan, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.TellNewest("one")
			web := w.set("web")
			w.pod("pod", blocking(ownedBy(web)))
			w.Remove(setRef("web"), policy)
			w.settle()
			w.mustBeGone(setRef("web"))
			w.mustList("all", 0, podKind, setKind, nodeKind)
			if w.Count("newest") == 0 {
				t.Error("the server was not asked")
			}
		})
	}
}

// Only a kind whose watch lags is listed; an object that the watch has missed holds the
// owner.
func TestR15_OnlyWhatLagsIsListed(t *testing.T) {
	w := newFixture(t)
	w.TellNewest("one")
	web := w.set("web")
	w.Hold(podKind)
	w.pod("pod", ownedBy(web))
	w.Remove(setRef("web"), orphan)
	w.try(3)
	w.mustExist(setRef("web"))
	if w.Count("patch finalizers") != 0 {
		t.Fatal("the finalizer was removed, although a dependent was not seen")
	}
	w.mustList("others", 0, setKind, nodeKind)
	if w.lists() == 0 {
		t.Error("the kind that lags was not listed")
	}
	w.Unhold(podKind)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("pod"))
}

// Revisions that the watches reached in another history prove nothing, until the kind was
// listed again.
func TestR15_AnotherHistoryIsNotTrusted(t *testing.T) {
	w := newFixture(t)
	w.TellNewest("one")
	complete := func(name string) {
		w.set(name)
		w.Remove(setRef(name), foreground)
		w.settle()
		w.mustBeGone(setRef(name))
	}
	complete("first")
	w.mustList("in the first history", 0, podKind, setKind)
	w.TellNewest("two")
	complete("second")
	w.mustList("in the second", 2, podKind, setKind)
	w.pod("any") // the watch has moved
	complete("third")
	w.mustList("the watch has moved", 4, podKind, setKind)
	w.Relist(podKind)
	w.pod("other")
	complete("fourth")
	w.mustList("pods were listed again", 2, podKind)
	w.mustList("pods were listed again", 3, setKind)
}

// A server whose revision is lower than the revisions of its watches was put back in
// time.
func TestR15_RevisionsThatWentBackwards(t *testing.T) {
	w := newFixture(t)
	w.TellNewest("one")
	w.c = collector.New(&aheadServer{w.Server}, collector.Config{Queue: w.keys, Workers: 1})
	w.Connect(w.c.Sink())
	w.set("web")
	w.Remove(setRef("web"), orphan)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustList("the watches are ahead of the server", 2, podKind, setKind)
}

// aheadServer is a server whose watches are ahead of its revision.
type aheadServer struct{ *apimodel.Server }

func (*aheadServer) Reached(ownership.Kind) string { return "1000" }
