package collector_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// crowd creates an owner with dependents.
func crowd(s *apimodel.Server, dependents int) {
	web := s.Create(ownership.Object{Kind: setKind, Namespace: space, Name: "web"})
	for i := range dependents {
		s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: fmt.Sprint("pod-", i), Owners: []ownership.Reference{ownedBy(web)}})
	}
}

// The dependents of a crowded owner are queued piece by piece, as the queue becomes short.
func TestQueueStaysShortInACascade(t *testing.T) {
	const dependents, piece = 500, 10
	w := newFixtureWith(t, collector.Config{Piece: piece})
	crowd(w.Server, dependents)
	w.drain()
	w.Remove(setRef("web"), background)
	longest := w.keys.Len()
	for uid, ok := w.keys.Take(); ok; uid, ok = w.keys.Take() {
		w.collect(uid)
		longest = max(longest, w.keys.Len())
	}
	if left := w.Len(); left != 0 {
		t.Errorf("%d objects are left, want none", left)
	}
	if longest > 2*piece {
		t.Errorf("%d keys waited, want at most %d", longest, 2*piece)
	}
}

// The queue gets all dependents of a crowded owner although none of them changes: the collector only observes.
func TestWholeCrowdIsReconsideredWithoutEvents(t *testing.T) {
	const dependents, piece = 100, 4
	w := newFixtureWith(t, collector.Config{Piece: piece, ObserveOnly: true})
	crowd(w.Server, dependents)
	w.drain()
	w.Remove(setRef("web"), background)
	reconsidered := 0
	for uid, ok := w.keys.Take(); ok; uid, ok = w.keys.Take() {
		w.collect(uid)
		reconsidered++
	}
	if reconsidered != dependents {
		t.Errorf("%d objects are reconsidered, want %d", reconsidered, dependents)
	}
}

// Dependents that need no action, because they are being deleted, do not keep others from being queued.
func TestCrowdBehindThoseThatNeedNoAction(t *testing.T) {
	w := newFixtureWith(t, collector.Config{Piece: 4})
	web := w.set("web")
	for i := range 60 {
		name := fmt.Sprint("pod-", i)
		isGoing := i/20 != 1
		o := ownership.Object{Kind: podKind, Namespace: space, Name: name, Owners: []ownership.Reference{ownedBy(web)}}
		if isGoing {
			o.Finalizers = []string{"acme.io/hold"}
		}
		w.Create(o)
		if isGoing {
			w.Remove(podRef(name), background)
		}
	}
	w.drain()
	w.Remove(setRef("web"), background)
	w.drain()
	if left := w.Len(); left != 40 {
		t.Errorf("%d objects are left, want the 40 that are held", left)
	}
}

// A collector that was stopped in the middle of a cascade goes on with it, whether its queue keeps keys or forgets them.
func TestCascadeGoesOnInTheNextRun(t *testing.T) {
	for name, test := range map[string]struct {
		isRestartable, othersRemove bool
	}{
		"keeps": {true, false}, "forgets": {false, false}, "keeps, others remove the rest": {true, true}, "forgets, others remove the rest": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apimodel.New()
				c := collector.New(s, collector.Config{Restartable: test.isRestartable, Piece: 4, Workers: 1})
				s.Serve(podKind, ownership.Namespaced)
				s.Serve(setKind, ownership.Namespaced)
				s.Connect(c.Sink())
				crowd(s, 200)
				first, stop := context.WithCancel(t.Context())
				defer stop()
				var deleted atomic.Int32
				s.Before(func(r apimodel.Request) {
					if r.Verb == "delete" && deleted.Add(1) == 50 {
						stop()
					}
				})
				run := func(ctx context.Context) (ended chan struct{}) {
					ended = make(chan struct{})
					go func() {
						defer close(ended)
						c.Run(ctx)
					}()
					return ended
				}
				ended := run(first)
				synctest.Wait()
				s.Remove(setRef("web"), background)
				<-ended
				if left := s.Len(); left < 100 {
					t.Fatalf("%d objects are left when the first run ends", left)
				}
				for i := range 200 {
					if _, exists := s.Lookup(podRef(fmt.Sprint("pod-", i))); exists && test.othersRemove {
						s.Remove(podRef(fmt.Sprint("pod-", i)), background)
					}
				}
				second, stopSecond := context.WithCancel(t.Context())
				ended = run(second)
				synctest.Wait()
				if left := s.Len(); left != 0 {
					t.Errorf("%d objects are left, want none", left)
				}
				if _, unfinished := c.Work(); len(unfinished) > 0 {
					t.Errorf("unfinished: %q", unfinished)
				}
				stopSecond()
				<-ended
			})
		})
	}
}
