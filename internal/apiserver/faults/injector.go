package faults

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
)

// Injector carries out a plan, which may be replaced at any time. It is safe for concurrent use.
type Injector struct {
	codecs  runtime.NegotiatedSerializer
	clock   clock.Clock
	current atomic.Pointer[turn] // nil: no faults
	journal journal
}

// turn is the time of one plan.
type turn struct {
	plan  Plan
	mu    sync.Mutex // guards draws
	draws *Draws
}

// NewInjector returns an injector with a plan. codecs encode refusals.
func NewInjector(p Plan, codecs runtime.NegotiatedSerializer, c clock.Clock) *Injector {
	i := &Injector{codecs: codecs, clock: c}
	i.Set(p)
	return i
}

// Set replaces the plan for the requests that come from now on. The draws begin anew.
func (i *Injector) Set(p Plan) {
	if len(p.Faults) == 0 {
		i.current.Store(nil)
		return
	}
	i.current.Store(&turn{plan: p, draws: NewDraws(p)})
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
