package collector_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// How the barrier uses lists.

// An object that a list shows and that is removed before the list arrives does not enter the
// graph.
func TestR15_ObjectThatGoesDuringTheListLeavesNothing(t *testing.T) {
	for _, shown := range []bool{false, true} {
		t.Run(fmt.Sprint("watch is as new as the list: ", shown), func(t *testing.T) {
			w := newFixture(t)
			web := w.set("web")
			w.Remove(setRef("web"), orphan)
			// The list of pods was made, its answer is on its way.
			pod := ownership.Object{Kind: podKind, Namespace: space, Name: "pod", UID: "pod", Owners: []ownership.Reference{ownedBy(web)}}
			w.onRequest("list", 2, func() {
				if shown {
					w.Bookmark()
				}
			})
			c := collector.New(&lateList{w.Server, func() { w.Create(pod) }, func() { w.Remove(podRef("pod"), background) }},
				collector.Config{Queue: w.keys, Workers: 1})
			w.Connect(c.Sink())
			w.c = c
			w.settle()
			w.mustBeGone(setRef("web"), podRef("pod"))
			if n := w.Count("patch owners") + w.Count("delete"); n != 0 {
				t.Errorf("%d writes to an object that is gone", n)
			}
		})
	}
}

// lateList is a server whose first list of pods shows an object that is gone
// when the list arrives.
type lateList struct {
	*apimodel.Server
	before, after func()
}

func (l *lateList) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (client.Page, error) {
	if kind != podKind || l.before == nil {
		return l.Server.List(ctx, kind, namespace, limit, after)
	}
	before := l.before
	l.before = nil
	before()
	page, err := l.Server.List(ctx, kind, namespace, limit, after)
	l.after()
	return page, err
}

// A list of many pages: all are read, unless the watch has shown the rest by then.
func TestR15_LongLists(t *testing.T) {
	setup := func(t *testing.T) *fixture {
		w := newFixture(t)
		web := w.set("web")
		for i := range 1200 {
			w.pod(fmt.Sprintf("pod-%04d", i))
		}
		w.Hold(podKind)
		w.Update(podRef("pod-1199"), addOwner(ownedBy(web)))
		w.Remove(setRef("web"), orphan)
		return w
	}
	t.Run("to the end", func(t *testing.T) {
		w := setup(t)
		w.onRequest("list", 2, w.Expire)
		w.settle()
		w.mustBeGone(setRef("web"))
		w.mustHaveOwners(podRef("pod-1199"))
		if got := w.lists(); got < 2*4 {
			t.Errorf("%d lists, want three pages and one list of sets, twice", got)
		}
	})
	t.Run("until the watch has shown it", func(t *testing.T) {
		w := setup(t)
		w.onRequest("list", 1, func() { w.Unhold(podKind); w.Bookmark() })
		w.settle()
		w.mustBeGone(setRef("web"))
		w.mustHaveOwners(podRef("pod-1199"))
		if got := w.lists(); got > 4 {
			t.Errorf("%d lists, want one page of pods and one list of sets, twice at most", got)
		}
	})
	t.Run("always too old", func(t *testing.T) {
		w := setup(t)
		w.Before(func(r apimodel.Request) {
			if r.Verb == "list" {
				w.Expire()
			}
		})
		w.try(2)
		w.mustExist(setRef("web"))
	})
}

// An object that names the owner's UID from outside the owner's scope is not a dependent,
// observed or not.
func TestR15_BadClaimHoldsNobody(t *testing.T) {
	for name, policy := range map[string]propagation{"orphan": orphan, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			web := w.set("web")
			w.set("other")
			w.Hold(podKind)
			elsewhere := blocking(ownedBy(web))
			w.Create(ownership.Object{Kind: podKind, Namespace: "elsewhere", Name: "pod", Owners: []ownership.Reference{elsewhere}})
			if policy == foreground {
				misnamed := blocking(ownedBy(web))
				misnamed.Name = "other"
				w.pod("misnamed", misnamed)
			}
			// A second owner in another namespace, so that pods are listed across all.
			far := w.Create(ownership.Object{Kind: setKind, Namespace: "far", Name: "far", UID: "far"})
			w.Remove(client.RefOf(far), policy)
			w.Remove(setRef("web"), policy)
			w.settle()
			w.mustBeGone(setRef("web"), client.RefOf(far))
		})
	}
}

// R13: an orphan deletion misses no object that names the owner's UID, whatever else it states: it would be collected once
// the owner is gone.
func TestR13_MissedClaimantsByUIDHoldTheOwner(t *testing.T) {
	for name, change := range map[string]func(*ownership.Reference){
		"another name":              func(r *ownership.Reference) { r.Name = "other" },
		"a kind that is not served": func(r *ownership.Reference) { r.APIVersion = "extensions/v1beta1" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			web := w.set("web")
			w.Hold(podKind)
			wrong := ownedBy(web)
			change(&wrong)
			w.pod("wrong", wrong)
			w.Remove(setRef("web"), orphan)
			w.try(3)
			w.mustExist(setRef("web"))
			w.Unhold(podKind)
			w.settle()
			w.mustBeGone(setRef("web"))
			w.mustHaveOwners(podRef("wrong"))
		})
	}
}

// R13, R14: while an API cannot be read, objects that name a cluster-scoped owner's UID under a kind of that API, and do not
// block, hold neither its orphan nor its foreground deletion: any tenant may create them.
func TestR14_ClaimsOnUnreadableKindsHoldNobody(t *testing.T) {
	metrics := ownership.Kind{Group: "metrics.k8s.io", Kind: "NodeMetrics"}
	for name, policy := range map[string]propagation{"orphan": orphan, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.Serve(metrics, ownership.Cluster)
			node := w.Create(ownership.Object{Kind: nodeKind, Name: "web"})
			w.Inject(apimodel.Fault{Verb: "get", Kind: metrics, Err: errors.New("metrics-server is down")})
			w.pod("wrong", ownership.Reference{APIVersion: "metrics.k8s.io/v1beta1", Kind: "NodeMetrics", Name: "web", UID: node.UID})
			w.drain()
			w.Remove(client.RefOf(node), policy)
			w.try(5)
			w.mustBeGone(client.RefOf(node))
			if policy == orphan {
				w.mustHaveOwners(podRef("wrong"))
			}
		})
	}
}

// A list across namespaces that turns out to be long is given up in favour of one in each.
func TestR15_ListAcrossNamespacesIsGivenUp(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Hold(podKind) // so that their number is not known
		for i := range 1200 {
			s.Create(ownership.Object{Kind: podKind, Namespace: "large", Name: fmt.Sprint("pod-", i)})
		}
		for _, namespace := range []string{"a", "b", "c"} {
			s.Create(ownership.Object{Kind: setKind, Namespace: namespace, Name: "web"})
			s.Create(ownership.Object{Kind: setKind, Namespace: namespace, Name: "next"})
		}
		for _, name := range []string{"web", "next"} {
			for _, namespace := range []string{"a", "b", "c"} {
				s.Remove(client.Ref{Kind: setKind, Namespace: namespace, Name: name}, foreground)
			}
		}
		time.Sleep(time.Minute)
		if got := s.Len(); got != 1200 {
			t.Errorf("%d objects are left, want all of the large namespace", got)
		}
		wide := 0
		for _, r := range s.Requests() {
			if r.Verb == "list" && r.Ref == (client.Ref{Kind: podKind}) {
				wide++
			}
		}
		if rounds := s.Count("list"); wide == 0 || wide > rounds/4 {
			t.Errorf("%d of %d lists are pages of the long one, want one in each round that shares it", wide, rounds)
		}
	})
}
