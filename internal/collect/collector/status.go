package collector

import (
	"time"

	"github.com/coppice-dev/coppice/internal/collect/collector/barrier"
	"github.com/coppice-dev/coppice/internal/collect/collector/breaker"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Status is the state of the collector at one moment, for people and metrics. Each part is
// consistent in itself, but not with the others.
type Status struct {
	// ObserveOnly is Config.ObserveOnly: nothing is changed.
	ObserveOnly bool `json:"observeOnly"`
	// Graph is the size of the graph.
	Graph GraphStatus `json:"graph"`
	// Kinds are the kinds that are served, observed, or waited for, by name.
	Kinds []KindStatus `json:"kinds"`
	// Deletions are the deletions under way and the completed ones, by kind and finalizer.
	Deletions []DeletionStatus `json:"deletions"`
	// Queue is the state of the queue, if the queue can report it.
	Queue QueueStatus `json:"queue"`
	// Barrier are the owners whose finalizer is not removed yet, because there is no proof that no
	// dependent was missed (R15). Longest waiting first.
	Barrier []BarrierWait `json:"barrier"`
	// Paused are the kinds whose deletions the breaker has paused, by name.
	Paused []Pause `json:"paused"`
	// Concurrency is the current limit on requests under way; 0: there is no limiter.
	Concurrency int `json:"concurrency,omitempty"`
	// Stats are the counters.
	Stats Stats `json:"stats"`
	// Latency is the time from the evidence that the last owner of an object is gone
	// to the answer to the object's DELETE.
	Latency Histogram `json:"latency"`
}

type (
	// BarrierWait is an owner at the barrier.
	BarrierWait = barrier.Wait
	// Hold is a reason why a finalizer is kept.
	Hold = barrier.Hold
	// Pause is a kind whose deletions are paused.
	Pause = breaker.Pause
)

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

// DeletionStatus is the progress of the deletions of a kind's objects that have, or had, a
// finalizer.
type DeletionStatus struct {
	Kind      string `json:"kind"`                // "Widget.example.com"; empty for the finalizers beyond a thousand
	Finalizer string `json:"finalizer,omitempty"` // none: objects without finalizers
	Objects   int    `json:"objects"`             // being deleted now
	// Oldest is the earliest of their deletionTimestamps.
	Oldest time.Time `json:"oldest,omitzero"`
	// Gone counts the objects that lost the finalizer while they were being deleted, or are gone.
	Gone uint64 `json:"gone"`
}

func deletionStatusOf(d ownership.Deletion) DeletionStatus {
	s := DeletionStatus{Finalizer: d.Finalizer, Objects: d.Objects, Gone: d.Gone}
	if d.Kind != (ownership.Kind{}) {
		s.Kind = d.Kind.String()
	}
	if d.Oldest != 0 {
		s.Oldest = time.Unix(d.Oldest, 0).UTC()
	}
	return s
}

// Backlog returns how many objects of a namespace wait to be reconsidered, if the queue has
// a method Waiting; else 0. It takes no lock that is held for long.
func (c *Collector) Backlog(namespace string) int {
	if q, ok := c.queue.(interface{ Waiting(tenant string) int }); ok {
		return q.Waiting(namespace)
	}
	return 0
}

// QueueStatus is the size and age of the queue. It needs a queue with methods Len and Oldest.
type QueueStatus struct {
	Length int           `json:"length"` // keys that wait for a worker
	Oldest time.Duration `json:"oldest"` // how long the first of them has waited
}

// Status returns the state of the collector.
func (c *Collector) Status() Status {
	s := Status{
		ObserveOnly: c.config.ObserveOnly,
		Kinds:       []KindStatus{},
		Deletions:   []DeletionStatus{},
		Barrier:     c.barrier.Status(),
		Paused:      c.breaker.Pauses(),
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
		for _, d := range g.Deletions() {
			s.Deletions = append(s.Deletions, deletionStatusOf(d))
		}
	})
	if c.config.Limiter != nil {
		s.Concurrency = c.config.Limiter.Limit()
	}
	if q, ok := c.queue.(interface{ Len() int }); ok {
		s.Queue.Length = q.Len()
	}
	if q, ok := c.queue.(interface{ Oldest() time.Duration }); ok {
		s.Queue.Oldest = q.Oldest()
	}
	return s
}

// Resume ends the pause of a kind by the breaker; for one window its deletions are not counted.
// It returns false if the kind was not paused.
func (c *Collector) Resume(kind ownership.Kind) bool {
	if !c.breaker.Resume(kind) {
		return false
	}
	c.log.Info("deletions resumed", "kind", kind.String())
	// The denied deletions are not remembered: all unsettled objects are reconsidered.
	c.state.change(func(g *ownership.Graph) []ownership.UID { return g.Unsettled() })
	return true
}

// View calls read with the ownership graph, under its lock. The lock blocks observations and
// decisions, so read must be short; and it must not keep any part of the graph.
func (c *Collector) View(read func(g *ownership.Graph)) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	read(c.state.graph)
}
