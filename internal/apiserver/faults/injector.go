package faults

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// Injector carries out a plan, which may be replaced at any time. It is safe for concurrent use.
type Injector struct {
	codecs      runtime.NegotiatedSerializer
	clock       clock.Clock
	patch       Patch
	connections *Connections
	current     atomic.Pointer[turn] // nil: no faults
	journal     journal
	witness     *witness

	mu       sync.Mutex
	replaced chan struct{} // guarded by mu; closed when the plan is replaced
}

// Patch applies a JSON merge patch to an object, as another user of the API.
type Patch func(ctx context.Context, resource schema.GroupVersionResource, namespace, name string, patch []byte) error

// Config configures an Injector.
type Config struct {
	// Codecs encode refusals.
	Codecs runtime.NegotiatedSerializer
	Clock  clock.Clock
	Log    *slog.Logger // discards if it is nil
	Patch  Patch
	// Connections are the connections of clients.
	Connections *Connections
}

// turn is the time of one plan.
type turn struct {
	plan         Plan
	staleLists   bool
	selectsUsers bool
	mu           sync.Mutex // guards draws and times
	draws        *Draws
	times        map[Kind]*rand.Rand // of the faults that do not belong to a request
}

// NewInjector returns an injector with a plan.
func NewInjector(p Plan, c Config) *Injector {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	i := &Injector{codecs: c.Codecs, clock: c.Clock, patch: c.Patch, connections: c.Connections, replaced: make(chan struct{})}
	i.witness = newWitness(c)
	i.Set(p)
	return i
}

// Set replaces the plan for the requests that come from now on. The draws begin anew.
func (i *Injector) Set(p Plan) {
	i.mu.Lock()
	defer i.mu.Unlock()
	close(i.replaced)
	i.replaced = make(chan struct{})
	if len(p.Faults) == 0 {
		i.current.Store(nil)
		return
	}
	_, stale := p.any(StaleList)
	users := slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.User != "" })
	i.current.Store(&turn{plan: p, staleLists: stale, selectsUsers: users, draws: NewDraws(p), times: map[Kind]*rand.Rand{}})
}

// Restart begins the plan anew, without a journal and anomalies.
func (i *Injector) Restart() {
	i.journal.clear()
	i.witness.clear()
	i.Set(i.Plan())
}

// now returns the current turn, which may be nil, and a channel that is closed when it ends.
func (i *Injector) now() (*turn, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current.Load(), i.replaced
}

// due waits until a fault of a kind that does not belong to a request is due, and returns its delay. It returns false
// when ctx ends.
func (i *Injector) due(ctx context.Context, k Kind) (delay time.Duration, due bool) {
	for {
		t, replaced := i.now()
		var next alarm
		if t != nil {
			var wait time.Duration
			if wait, delay = t.time(k); wait > 0 {
				next = after(i.clock, wait)
			}
		}
		select {
		case <-next.rings:
			return delay, true
		case <-replaced:
			next.stop()
		case <-ctx.Done():
			next.stop()
			return 0, false
		}
	}
}

// time draws when the next fault of a kind comes, and its delay; 0: never.
func (t *turn) time(k Kind) (wait, delay time.Duration) {
	f, ok := t.plan.any(k)
	if !ok {
		return 0, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times[k] == nil {
		t.times[k] = t.plan.source(k, 0)
	}
	return drawn(t.times[k], f.Every), drawn(t.times[k], f.Delay)
}

// Plan returns the plan.
func (i *Injector) Plan() Plan {
	if t := i.current.Load(); t != nil {
		return t.plan
	}
	return Plan{}
}

// next draws what happens to a request, and keeps it in the journal.
func (i *Injector) next(t *turn, r Request) Fate {
	t.mu.Lock()
	fate := t.draws.Next(r)
	t.mu.Unlock()
	if !fate.isNothing() {
		i.journal.add(Entry{Time: i.clock.Now(), Request: r, Fate: fate})
	}
	return fate
}
