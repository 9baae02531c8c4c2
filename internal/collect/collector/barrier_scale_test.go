package collector_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// The barrier with all workers, on fake time.

// Completions share their lists: a thousand owners in a hundred namespaces.
func TestR15_CompletionsShareTheirLists(t *testing.T) {
	const namespaces, owners, kinds = 100, 10, 30
	for name, policy := range map[string]propagation{"foreground": foreground, "orphan": orphan} {
		t.Run(name, func(t *testing.T) {
			running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
				for i := range kinds {
					s.Serve(ownership.Kind{Group: "example.com", Kind: fmt.Sprint("Kind", i)}, ownership.Namespaced)
				}
				for i := range namespaces * owners {
					web := s.Create(ownership.Object{Kind: setKind, Namespace: fmt.Sprint("ns-", i/owners), Name: fmt.Sprint("set-", i)})
					for j := range 3 {
						s.Create(ownership.Object{
							Kind: podKind, Namespace: web.Namespace, Name: fmt.Sprint("pod-", i, "-", j),
							Owners: []ownership.Reference{blocking(ownedBy(web))},
						})
					}
				}
				synctest.Wait()
				before := s.Count("")
				for i := range namespaces * owners {
					s.Remove(client.Ref{Kind: setKind, Namespace: fmt.Sprint("ns-", i/owners), Name: fmt.Sprint("set-", i)}, policy)
				}
				time.Sleep(10 * time.Second)
				want := 0
				if policy == orphan {
					want = namespaces * owners * 3
				}
				if got := s.Len(); got != want {
					t.Errorf("%d objects are left, want %d", got, want)
				}
				lists, writes := s.Count("list"), s.Count("")-before-s.Count("list")
				if lists > writes {
					t.Errorf("%d lists for %d writes", lists, writes)
				}
				t.Logf("%d owners: %d rounds, %d lists, %d writes", namespaces*owners, c.Stats().Rounds, lists, writes)
			})
		})
	}
}

// A namespace that takes long to read, or cannot be read, does not hold any other: not even when
// it makes the list across namespaces equally slow or broken.
func TestR15_SlowNamespaceHoldsNoOther(t *testing.T) {
	for _, name := range []string{"slow", "broken"} {
		t.Run(name, func(t *testing.T) {
			running(t, collector.Config{}, func(s *apimodel.Server, _ *collector.Collector) {
				answer := make(chan struct{})
				for _, ref := range []client.Ref{{Kind: podKind, Namespace: "slow"}, {Kind: podKind}} {
					if name == "slow" {
						s.Inject(apimodel.Fault{Verb: "list", Ref: ref, Wait: answer})
					} else {
						s.Inject(apimodel.Fault{Verb: "list", Ref: ref, Err: errForbidden})
					}
				}
				for _, namespace := range []string{"slow", "a", "b", "c"} {
					s.Create(ownership.Object{Kind: setKind, Namespace: namespace, Name: "web"})
				}
				synctest.Wait()
				s.Remove(client.Ref{Kind: setKind, Namespace: "slow", Name: "web"}, foreground)
				time.Sleep(time.Second)
				for _, namespace := range []string{"a", "b", "c"} {
					s.Remove(client.Ref{Kind: setKind, Namespace: namespace, Name: "web"}, foreground)
				}
				time.Sleep(5 * time.Second)
				if got := s.Len(); got != 1 {
					t.Errorf("%d objects are left, want the one in the namespace that cannot be read", got)
				}
				close(answer)
				s.Heal()
				time.Sleep(2 * time.Minute)
				if got := s.Len(); got != 0 {
					t.Errorf("%d objects are left when all can be read", got)
				}
			})
		})
	}
}

// A kind that does not answer does not take all lists: there are twenty owners in as many
// namespaces whose widgets cannot be read, and one without any.
func TestR15_SilentKindLeavesListsToOthers(t *testing.T) {
	running(t, collector.Config{Lists: 6}, func(s *apimodel.Server, _ *collector.Collector) {
		s.Serve(widgetKind, ownership.Namespaced)
		answer := make(chan struct{})
		silent := func(namespace string) {
			s.Inject(apimodel.Fault{Verb: "list", Ref: client.Ref{Kind: widgetKind, Namespace: namespace}, Wait: answer})
		}
		silent("")
		for i := range 20 {
			silent(fmt.Sprint("ns-", i))
			s.Create(ownership.Object{Kind: setKind, Namespace: fmt.Sprint("ns-", i), Name: "web"})
		}
		s.Create(ownership.Object{Kind: nodeKind, Name: "n"})
		synctest.Wait()
		for i := range 20 {
			s.Remove(client.Ref{Kind: setKind, Namespace: fmt.Sprint("ns-", i), Name: "web"}, foreground)
		}
		time.Sleep(5 * time.Second)
		before := s.Count("list")
		s.Remove(client.Ref{Kind: nodeKind, Name: "n"}, foreground)
		time.Sleep(5 * time.Second)
		if got := s.Count("list") - before; got != 3 {
			t.Errorf("%d lists for a cluster-scoped owner, want those of the three kinds that answer", got)
		}
		close(answer)
		time.Sleep(time.Minute)
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left when all can be read", got)
		}
	})
}

// Owners that are held by a kind that stays broken are tried less and less often,
// and all together; and at once when the kind is listed again.
func TestR15_HeldOwnersBackOff(t *testing.T) {
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		s.Inject(apimodel.Fault{Verb: "list", Kind: podKind, Err: errForbidden})
		for i := range 50 {
			s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: fmt.Sprint("set-", i)})
		}
		for i := range 50 {
			s.Remove(setRef(fmt.Sprint("set-", i)), foreground)
		}
		time.Sleep(10 * time.Minute)
		early := s.Count("list")
		time.Sleep(10 * time.Minute)
		if got := s.Count("list") - early; got < 9 || got > 60 {
			t.Errorf("%d lists in ten minutes, want a few a minute for all 50", got)
		}
		if got := len(c.Status().Barrier); got != 50 {
			t.Errorf("%d owners at the barrier, want 50", got)
		}
		s.Heal()
		s.Relist(podKind)
		time.Sleep(time.Second)
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left a second after the kind was listed", got)
		}
	})
}

// With more namespaces than a round serves, all are served.
func TestR15_ManyNamespaces(t *testing.T) {
	const n = 1200
	running(t, collector.Config{}, func(s *apimodel.Server, c *collector.Collector) {
		for i := range n {
			s.Create(ownership.Object{Kind: setKind, Namespace: fmt.Sprint("ns-", i), Name: "web"})
		}
		s.Hold(setKind) // so that all come at once
		for i := range n {
			s.Remove(client.Ref{Kind: setKind, Namespace: fmt.Sprint("ns-", i), Name: "web"}, foreground)
		}
		s.Unhold(setKind)
		time.Sleep(5 * time.Second)
		if got := s.Len(); got != 0 {
			t.Errorf("%d objects are left, want none", got)
		}
		if got := c.Stats(); got.Lists > 100 {
			t.Errorf("%d lists in %d rounds for %d namespaces", got.Lists, got.Rounds, n)
		}
	})
}

// H7: the watch-lag table. Dependents are created, their owner is deleted at
// once, and the watch of the dependents lags.
func TestH7WatchLagTable(t *testing.T) {
	const owners = 200
	for _, lag := range []time.Duration{0, 5, 20, 100, 500, 5000} {
		t.Run(fmt.Sprintf("%d ms", lag), func(t *testing.T) {
			for name, mode := range map[string]collector.Switch{"barrier": collector.On, "no barrier": collector.Off} {
				lost := lagged(t, lag*time.Millisecond, owners, orphan, mode)
				inverted := lagged(t, lag*time.Millisecond, owners, foreground, mode)
				t.Logf("%s: %d of %d orphans lost, %d of %d owners gone before their dependents", name, lost, 3*owners, inverted, owners)
				if met := lost > 0 && inverted > 0; mode == collector.On && lost+inverted > 0 || mode == collector.Off && met != (lag > 0) {
					t.Errorf("%s at a lag of %v: %d lost, %d inverted", name, lag*time.Millisecond, lost, inverted)
				}
			}
		})
	}
}

// lagged deletes owners under lag. It returns how many dependents were lost, or
// how many owners went before a dependent.
func lagged(t *testing.T, lag time.Duration, owners int, policy propagation, barrier collector.Switch) int {
	var wrong atomic.Int64
	running(t, collector.Config{Barrier: barrier}, func(s *apimodel.Server, _ *collector.Collector) {
		owner := func(i int) client.Ref {
			return client.Ref{Kind: setKind, Namespace: space, Name: fmt.Sprint("web-", i)}
		}
		s.Before(func(r apimodel.Request) {
			if r.Verb != "patch finalizers" {
				return
			}
			for j := range 3 {
				if _, ok := s.Lookup(podRef(fmt.Sprint(r.Ref.Name, "-", j))); ok && policy == foreground {
					wrong.Add(1)
					return
				}
			}
		})
		if lag > 0 {
			s.Hold(podKind)
		}
		for i := range owners {
			web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: owner(i).Name})
			for j := range 3 {
				s.Create(ownership.Object{
					Kind: podKind, Namespace: space, Name: fmt.Sprint(web.Name, "-", j),
					Owners: []ownership.Reference{blocking(ownedBy(web))},
				})
			}
			s.Remove(owner(i), policy)
		}
		time.Sleep(lag)
		s.Unhold(podKind)
		time.Sleep(5 * time.Minute)
		if policy == orphan {
			wrong.Store(int64(3*owners - s.Len()))
		} else if n := s.Len(); n != 0 {
			t.Errorf("%d objects are left after a foreground deletion", n)
		}
	})
	return int(wrong.Load())
}
