package collector_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// R14, FG-03: a blocking dependent that hangs holds its owner, until it is
// released in one of three ways (CF-03).
func TestR14_BlockingDependentHoldsItsOwner(t *testing.T) {
	ways := map[string]func(w *fixture){
		"it goes":                  func(w *fixture) { w.Update(podRef("pod"), removeFinalizer("example.com/own")) },
		"it is detached by a user": func(w *fixture) { w.Update(podRef("pod"), removeOwner("web")) },
		"it blocks no more": func(w *fixture) {
			w.Update(podRef("pod"), func(o *ownership.Object) { o.Owners[0].BlockOwnerDeletion = ownership.False })
		},
	}
	for name, release := range ways {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			web := w.set("web")
			w.pod("pod", blocking(ownedBy(web)))
			w.pod("other", ownedBy(web))
			w.Update(podRef("pod"), addFinalizer("example.com/own"))
			w.Remove(setRef("web"), foreground)
			w.settle()
			w.mustExist(setRef("web"), podRef("pod"))
			w.mustBeGone(podRef("other"))
			if n := w.Count("patch finalizers"); n != 0 {
				t.Fatalf("%d finalizers removed too early", n)
			}
			release(w)
			w.settle()
			w.mustBeGone(setRef("web"))
		})
	}
}

// FG-04: the finalizer that a second DELETE brings back is removed again.
func TestR14_FinalizerAddedAgainIsRemovedAgain(t *testing.T) {
	w := newFixture(t)
	w.set("web")
	w.Update(setRef("web"), addFinalizer("example.com/own"))
	for range 2 {
		w.Remove(setRef("web"), foreground)
		w.settle()
		web, _ := w.Lookup(setRef("web"))
		if diff := cmp.Diff([]string{"example.com/own"}, web.Finalizers); diff != "" {
			t.Fatalf("finalizers (-want +got):\n%s", diff)
		}
	}
	w.Update(setRef("web"), removeFinalizer("example.com/own"))
	w.mustBeGone(setRef("web"))
}

// FG-01: a dependent with another, solid owner is detached, not deleted.
func TestR14_DependentWithSolidOwnerIsDetached(t *testing.T) {
	w := newFixture(t)
	web, canary := w.set("web"), w.set("canary")
	w.pod("pod", blocking(ownedBy(web)), ownedBy(canary))
	w.Remove(setRef("web"), foreground)
	w.settle()
	w.mustBeGone(setRef("web"))
	w.mustHaveOwners(podRef("pod"), "canary")
}

// FG-07: an object that has dependents of its own is deleted in the foreground, a leaf in the background.
func TestR14_ForegroundGoesDown(t *testing.T) {
	w := newFixture(t)
	top := w.set("top")
	middle := w.set("middle", blocking(ownedBy(top)))
	w.pod("leaf", blocking(ownedBy(middle)))
	w.Remove(setRef("top"), foreground)
	w.settle()
	if got := w.Len(); got != 0 {
		t.Errorf("%d objects are left, want none", got)
	}
	var got []string
	for _, r := range w.Requests() {
		if r.Verb == "delete" {
			got = append(got, fmt.Sprint(r.Ref.Name, " ", r.Propagation))
		}
	}
	if diff := cmp.Diff([]string{"middle Foreground", "leaf Background"}, got); diff != "" {
		t.Errorf("DELETEs (-want +got):\n%s", diff)
	}
}

// CY-01, CY-02: cycles of blocking references, one or all deleted in the foreground.
func TestBlockingCycleDeletedInTheForegroundGoes(t *testing.T) {
	for name, deleted := range map[string][]string{"one": {"a"}, "all": {"a", "b", "c"}} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.set("a", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "c", UID: "c"})))
			w.set("b", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "a", UID: "a"})))
			w.set("c", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "b", UID: "b"})))
			w.settle()
			for _, name := range deleted {
				w.Remove(setRef(name), foreground)
			}
			w.settle()
			w.mustBeGone(setRef("a"), setRef("b"), setRef("c"))
		})
	}
}

// CY-02: an owner of itself; two; a long cycle; all around a cycle deleted at once.
func TestCyclesAreCollected(t *testing.T) {
	ring := func(w *fixture, n int) {
		for i := range n {
			before := fmt.Sprint("s", (i+n-1)%n)
			w.set(fmt.Sprint("s", i), blocking(ownedBy(ownership.Object{Kind: setKind, Name: before, UID: ownership.UID(before)})))
		}
		w.settle()
	}
	for _, n := range []int{1, 2, 7, 100} {
		for name, deleted := range map[string]int{"one": 1, "all": n} {
			t.Run(fmt.Sprintf("%d, %s deleted", n, name), func(t *testing.T) {
				w := newFixture(t)
				ring(w, n)
				for i := range deleted {
					w.Remove(setRef(fmt.Sprint("s", i)), foreground)
				}
				w.settle()
				if got := w.Len(); got != 0 {
					t.Errorf("%d objects are left, want none", got)
				}
			})
		}
	}
}

// CY-02: a member with a solid owner outside is detached from the cycle, and stays.
func TestCycleWithOwnerOutside(t *testing.T) {
	w := newFixture(t)
	held := w.set("held")
	w.set("a", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "c", UID: "c"})))
	w.set("b", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "a", UID: "a"})), ownedBy(held))
	w.set("c", blocking(ownedBy(ownership.Object{Kind: setKind, Name: "b", UID: "b"})))
	w.settle()
	w.Remove(setRef("a"), foreground)
	w.settle()
	w.mustBeGone(setRef("a"))
	w.mustHaveOwners(setRef("b"), "held")
	w.mustHaveOwners(setRef("c"), "b") // its owner is there
}

// A cascade of a thousand, with all workers: hardly more than one request each.
func TestCascadeOfAThousand(t *testing.T) {
	const n = 1000
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web"})
		for i := range n {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{ownedBy(web)},
			})
		}
		synctest.Wait()
		before := s.Count("")
		s.Remove(setRef("web"), background)
		synctest.Wait()
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left, want none", got)
		}
		if got := s.Count("") - before; got > n*101/100 {
			t.Errorf("%d requests for %d objects, want %d at most", got, n, n*101/100)
		}
		if got := c.Stats(); got.Deletes != int64(s.Count("delete")) || got.Delete < n {
			t.Errorf("stats = %+v, want %d DELETEs", got, s.Count("delete"))
		}
	})
}

// The same with the other policies, whose cost is one request more, for the
// owner, and the barrier's list of each of the two namespaced kinds.
func TestCascadeCostsOneRequestMoreWithOtherPolicies(t *testing.T) {
	const n = 200
	for name, test := range map[string]struct {
		remove func(s *apimodel.Server)
		left   int
	}{
		"foreground": {func(s *apimodel.Server) { s.Remove(setRef("web"), foreground) }, 0},
		"orphan":     {func(s *apimodel.Server) { s.Remove(setRef("web"), orphan) }, n},
	} {
		t.Run(name, func(t *testing.T) {
			running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
				web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web"})
				for i := range n {
					s.Create(ownership.Object{
						Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{blocking(ownedBy(web))},
					})
				}
				synctest.Wait()
				before := s.Count("")
				test.remove(s)
				synctest.Wait()
				if got := s.Len(); got != test.left {
					t.Errorf("%d objects are left, want %d", got, test.left)
				}
				if got := s.Count("") - before; got > n+1+3 {
					t.Errorf("%d requests, want %d at most", got, n+1+3)
				}
			})
		})
	}
}

// A server that refuses requests gets fewer at a time, and nothing is lost.
func TestConcurrencyFollowsTheServer(t *testing.T) {
	const n = 200
	limiter := pace.New(32, 64, time.Now)
	running(t, collector.Config{Limiter: limiter, Workers: 64}, func(s *apimodel.Server, c *collector.Collector) {
		web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web"})
		for i := range n {
			s.Create(ownership.Object{
				Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{ownedBy(web)},
			})
		}
		s.Inject(apimodel.Fault{Verb: "delete", Err: apierrors.NewTooManyRequests("slow down", 1)})
		s.Remove(setRef("web"), background)
		time.Sleep(10 * time.Second)
		if got := c.Status().Concurrency; got > 4 {
			t.Errorf("%d requests at a time on a server that refuses all of them", got)
		}
		s.Heal()
		time.Sleep(10 * time.Second)
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left", got)
		}
	})
}

// R14: in a chain of owners that block each other, each level costs the same number of requests, however long the
// chain is: a DELETE on the way down and a PATCH on the way up. Before the PATCH the barrier surveys the watches
// once, and reads the last writes or, if the server does not report these, lists the kinds that may have dependents
// in the namespace.
func TestR14_ForegroundChainCostsTheSameAtEachLevel(t *testing.T) {
	for name, test := range map[string]struct {
		tellsNewest bool
		want        map[string]int // per level
	}{
		"server that knows what was written last": {true, map[string]int{"delete": 1, "patch finalizers": 1, "survey": 1, "newest": 1}},
		"any other server":                        {false, map[string]int{"delete": 1, "patch finalizers": 1, "survey": 1, "list": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, levels := range []int{2, 50, 200} {
				want := map[string]int{}
				for verb, n := range test.want {
					want[verb] = n * (levels - 1)
				}
				if diff := cmp.Diff(want, requestsOfChain(t, levels, test.tellsNewest)); diff != "" {
					t.Errorf("requests for %d levels (-want +got):\n%s", levels, diff)
				}
			}
		})
	}
}

// requestsOfChain counts the requests of the collector, by verb, for a chain whose first owner is deleted in the foreground.
func requestsOfChain(t *testing.T, levels int, tellsNewest bool) map[string]int {
	t.Helper()
	requests := map[string]int{}
	running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
		if tellsNewest {
			s.TellNewest("one")
		}
		owner := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "level-0"})
		for i := 1; i < levels; i++ {
			owner = s.Create(ownership.Object{
				Kind: setKind, Namespace: space, Name: fmt.Sprint("level-", i), Owners: []ownership.Reference{blocking(ownedBy(owner))},
			})
		}
		synctest.Wait()
		before := len(s.Requests())
		s.Remove(setRef("level-0"), foreground)
		time.Sleep(time.Minute) // the barrier's rounds come one after the other
		if left := s.Len(); left != 0 {
			t.Errorf("%d of %d levels are left", left, levels)
		}
		for _, r := range s.Requests()[before:] {
			requests[r.Verb]++
		}
	})
	return requests
}
