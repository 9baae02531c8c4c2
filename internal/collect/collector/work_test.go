package collector

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// TestStoredAndObservedObjectsAreCompared compares the objects of a server with the observed ones.
func TestStoredAndObservedObjectsAreCompared(t *testing.T) {
	pod := ownership.Kind{Kind: "Pod"}
	object := func(uid ownership.UID, version string, phase ownership.Phase) ownership.Object {
		return ownership.Object{UID: uid, Kind: pod, Namespace: "shop", Name: string(uid), ResourceVersion: version, Phase: phase}
	}
	a := object("a", "5", ownership.Active)
	for _, test := range []struct {
		name             string
		stored, observed []ownership.Object
		lags             bool
		terminating      []ownership.UID
	}{
		{"the same", []ownership.Object{a}, []ownership.Object{a}, false, nil},
		{"one was not observed", []ownership.Object{a, object("b", "6", ownership.Active)}, []ownership.Object{a}, true, nil},
		{"a change was not observed", []ownership.Object{object("a", "6", ownership.Active)}, []ownership.Object{a}, true, nil},
		{"a deletion was not observed", nil, []ownership.Object{a}, true, nil},
		{"observed more than was listed", []ownership.Object{a}, []ownership.Object{object("a", "6", ownership.Terminating), object("b", "11", ownership.Active)}, false, []ownership.UID{"a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, g := newStored(), ownership.New()
			g.SetScope(pod, ownership.Namespaced)
			s.listed[pod] = 10
			for _, o := range test.stored {
				s.objects[o.UID] = o
			}
			for _, o := range test.observed {
				g.Observe(o)
			}
			lagging := map[ownership.Kind]bool{}
			var terminating []ownership.UID
			for _, o := range s.compare(func(read func(*ownership.Graph)) { read(g) }, lagging) {
				terminating = append(terminating, o.UID)
			}
			if lagging[pod] != test.lags || !slices.Equal(terminating, test.terminating) {
				t.Errorf("lags: %v, terminating: %v; want %v, %v", lagging[pod], terminating, test.lags, test.terminating)
			}
		})
	}
}

// TestObjectIsUnfinishedWorkUntilItIsSettled checks that an object that comes back later is unfinished work until it is
// settled.
func TestObjectIsUnfinishedWorkUntilItIsSettled(t *testing.T) {
	c := New(client.Interface(nil), Config{Queue: queue.New(queue.Config{})})
	unfinished := func(want int) {
		t.Helper()
		if _, all := c.Work(); len(all) != want {
			t.Errorf("unfinished: %q, want %d", all, want)
		}
	}
	unfinished(0)
	c.queue.Add("a")
	unfinished(1) // it waits
	uid, _ := c.queue.Take()
	unfinished(1) // it is with a worker
	c.work.end(uid, Outcome{Next: Later, After: time.Hour, Err: errors.New("the server is busy")})
	c.queue.Done(uid)
	unfinished(1) // it comes back
	c.work.end(uid, Outcome{Next: Settled})
	unfinished(0)
}

// TestAttemptThatIsRefusedAgainIsNoNewWork checks that the repetition of what the server refuses is not counted, so that
// a collector beside objects that are refused is at rest (R31).
func TestAttemptThatIsRefusedAgainIsNoNewWork(t *testing.T) {
	c := New(client.Interface(nil), Config{})
	attempt := func(err error, want int) {
		t.Helper()
		c.work.begin()
		c.work.end("a", Outcome{Next: Later, After: time.Hour, Err: err})
		if counted, _ := c.Work(); counted != want {
			t.Errorf("after %v: %d attempts are counted, want %d", err, counted, want)
		}
	}
	refused := refusedError{uid: "a"}
	attempt(refused, 1)
	attempt(refused, 1)
	attempt(errors.New("the server is busy"), 2)
	attempt(refused, 3)
	attempt(refusedError{uid: "b"}, 4)
}

// Of the reason why an object is tried again no more than a kilobyte is kept.
func TestReasonOfAnotherTryIsBounded(t *testing.T) {
	c := New(client.Interface(nil), Config{})
	c.work.end("a", Outcome{Next: Retry, Err: errors.New(strings.Repeat("x", 1<<20))})
	if kept := len(c.work.retries["a"].reason); kept > 2*maxText {
		t.Errorf("%d bytes are kept", kept)
	}
}
