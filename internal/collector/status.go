package collector

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// Status is how the collector is doing at one moment, for people and metrics. It
// is consistent within each part, not across them.
type Status struct {
	// ObserveOnly tells that nothing is changed (Config.ObserveOnly).
	ObserveOnly bool `json:"observeOnly"`
	// Graph is the size of what is known.
	Graph GraphStatus `json:"graph"`
	// Kinds are all that are served, observed, or waited for, by name.
	Kinds []KindStatus `json:"kinds"`
	// Queue is what waits to be reconsidered, as far as the queue tells.
	Queue QueueStatus `json:"queue"`
	// Barrier are the owners whose finalizer is not removed yet, because it is not
	// proven that no dependent was missed (R15). Longest waiting first.
	Barrier []BarrierWait `json:"barrier"`
	// Paused are the kinds whose deletions the breaker has paused, by name.
	Paused []Pause `json:"paused"`
	// Concurrency is how many requests the server is found to take at a time; 0: nobody looks.
	Concurrency int `json:"concurrency,omitempty"`
	// Stats are the counters.
	Stats Stats `json:"stats"`
	// Latency is the time from the evidence that the last owner of an object is gone
	// to the answer to the object's DELETE.
	Latency Histogram `json:"latency"`
}

// GraphStatus is the size of the ownership graph.
type GraphStatus struct {
	Objects    int `json:"objects"`    // observed
	Presumed   int `json:"presumed"`   // owners that are only claimed
	References int `json:"references"` // from object to owner
	Claims     int `json:"claims"`     // distinct statements about an owner
	Answers    int `json:"answers"`    // of live reads, kept
	InCycles   int `json:"inCycles"`   // objects that are part of a blocking cycle
}

// KindStatus is one kind in the graph.
type KindStatus struct {
	Kind    string `json:"kind"`    // "ReplicaSet.apps"
	Scope   string `json:"scope"`   // "namespaced", "cluster"; "unknown" when it is not served
	Objects int    `json:"objects"` // observed
	// Parked counts the owner references that wait for this kind to be served (R7).
	Parked int `json:"parked,omitempty"`
}

// Backlog is how many objects of a namespace wait to be looked at, as far as the queue
// tells by a method Waiting. It takes no lock that is held for long.
func (c *Collector) Backlog(namespace string) int {
	if q, ok := c.queue.(interface{ Waiting(tenant string) int }); ok {
		return q.Waiting(namespace)
	}
	return 0
}

// QueueStatus is how much waits. A queue tells it by methods Len and Oldest.
type QueueStatus struct {
	Length int           `json:"length"` // keys that wait for a worker
	Oldest time.Duration `json:"oldest"` // how long the first of them has waited
}

// BarrierWait is an owner at the barrier.
type BarrierWait struct {
	Owner     string        `json:"owner"` // "ReplicaSet.apps shop/web"
	UID       ownership.UID `json:"uid"`
	Finalizer string        `json:"finalizer"`
	Since     time.Time     `json:"since"`
	Rounds    int           `json:"rounds"`          // that have proved too little
	Holds     []Hold        `json:"holds,omitempty"` // why; empty before the first round has ended
}

// Status tells how the collector is doing.
func (c *Collector) Status() Status {
	s := Status{
		ObserveOnly: c.observeOnly,
		Kinds:       []KindStatus{},
		Barrier:     c.barrier.status(),
		Paused:      c.brake.pauses(),
		Stats:       c.Stats(),
		Latency:     c.latency.read(),
	}
	c.View(func(g *ownership.Graph) {
		stats := g.Stats()
		s.Graph = GraphStatus{
			Objects: stats.Objects, Presumed: stats.Presumed, References: stats.References,
			Claims: stats.Claims, Answers: stats.Answers, InCycles: stats.InCycles,
		}
		for _, k := range g.ByKind() {
			s.Kinds = append(s.Kinds, KindStatus{Kind: k.Kind.String(), Scope: k.Scope.String(), Objects: k.Objects, Parked: k.Parked})
		}
	})
	if c.limiter != nil {
		s.Concurrency = c.limiter.Limit()
	}
	if q, ok := c.queue.(interface{ Len() int }); ok {
		s.Queue.Length = q.Len()
	}
	if q, ok := c.queue.(interface{ Oldest() time.Duration }); ok {
		s.Queue.Oldest = q.Oldest()
	}
	return s
}

// View runs a function on the ownership graph while nothing changes it. Nothing
// is observed and nothing decided meanwhile, so it must be short; and it must
// keep nothing of the graph.
func (c *Collector) View(read func(g *ownership.Graph)) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	read(c.state.graph)
}

func (b *barrier) status() []BarrierWait {
	b.mu.Lock()
	defer b.mu.Unlock()
	waits := make([]BarrierWait, 0, len(b.waits))
	for uid, w := range b.waits {
		waits = append(waits, BarrierWait{
			Owner: RefOf(w.owner).String(), UID: uid, Finalizer: w.finalizer,
			Since: w.since, Rounds: w.attempts, Holds: w.holds,
		})
	}
	slices.SortFunc(waits, func(a, b BarrierWait) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID)) })
	return waits
}
