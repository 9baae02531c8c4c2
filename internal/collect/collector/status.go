package collector

import (
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

func deletionStatusOf(d ownership.Deletion) report.DeletionStatus {
	s := report.DeletionStatus{Finalizer: d.Finalizer, Objects: d.Objects, Gone: d.Gone}
	if d.Kind != (ownership.Kind{}) {
		s.Kind = d.Kind.String()
	}
	if d.Oldest != 0 {
		s.Oldest = time.Unix(d.Oldest, 0).UTC()
	}
	return s
}

// Backlog returns how many objects of a namespace wait to be reconsidered, in the queue or for a place (places.go). The queue
// counts if it has a method Waiting. It takes no lock that is held for long.
func (c *Collector) Backlog(namespace string) int {
	objects := c.places.lengthOf(namespace)
	if q, ok := c.queue.(interface{ Waiting(tenant string) int }); ok {
		objects += q.Waiting(namespace)
	}
	return objects
}

// Status returns the state of the collector at about this time: it is read in pieces, between which the state may change.
// It is without the fields of its feed and of its process: Synced, AsleepSince,
// ProbeError and Resources. Length and Oldest of the queue need a queue with methods Len and Oldest.
func (c *Collector) Status() report.Status {
	s := report.Status{
		ObserveOnly: c.config.ObserveOnly,
		Kinds:       []report.KindStatus{},
		Deletions:   []report.DeletionStatus{},
		Barrier:     c.barrier.Status(),
		Paused:      c.breaker.pauses(),
		Stats:       c.Stats(),
		Latency:     c.latency.read(),
	}
	c.View(func(g *ownership.Graph) {
		stats := g.Stats()
		s.Graph = report.GraphStatus{
			Objects: stats.Objects, Presumed: stats.Presumed, References: stats.References,
			Claims: stats.Claims, Answers: stats.Answers, InCycles: stats.InCycles,
		}
	})
	s.Kinds = c.kinds()
	var deletions ownership.Deletions
	ownership.Survey(c.View, func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor { return deletions.Add(g, from) })
	for _, d := range deletions.Sorted() {
		s.Deletions = append(s.Deletions, deletionStatusOf(d))
	}
	s.Refused, s.RefusedCounts = c.state.refusals()
	if c.config.Limiter != nil {
		s.Concurrency = c.config.Limiter.Limit()
	}
	s.Queue.Length, s.Queue.Oldest = c.places.length()
	if q, ok := c.queue.(interface{ Len() int }); ok {
		s.Queue.Length += q.Len()
	}
	if q, ok := c.queue.(interface{ Oldest() time.Duration }); ok {
		s.Queue.Oldest = max(s.Queue.Oldest, q.Oldest())
	}
	return s
}

// kinds returns the counts of each kind that is served, has observed objects, or is named in owner references that wait
// for it.
func (c *Collector) kinds() []report.KindStatus {
	parked := make(map[ownership.Kind]int)
	ownership.Survey(c.View, func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor { return g.Parked(from, parked) })
	var known []ownership.KindStats
	c.View(func(g *ownership.Graph) { known = g.ByKind() })
	kinds := make([]report.KindStatus, 0, len(known)+len(parked))
	for _, k := range known {
		kinds = append(kinds, report.KindStatus{Kind: k.Kind.String(), Scope: k.Scope.String(), Objects: k.Objects, Parked: parked[k.Kind]})
		delete(parked, k.Kind)
	}
	for kind, references := range parked {
		kinds = append(kinds, report.KindStatus{Kind: kind.String(), Scope: ownership.ScopeUnknown.String(), Parked: references})
	}
	slices.SortFunc(kinds, func(a, b report.KindStatus) int { return strings.Compare(a.Kind, b.Kind) })
	return kinds
}

// Resume ends the pause of a kind by the breaker; for one window its deletions are not counted.
// It returns false if the kind was not paused.
func (c *Collector) Resume(kind ownership.Kind) bool {
	if !c.breaker.resume(kind) {
		return false
	}
	c.log.Info("deletions resumed", "kind", kind.String())
	// The denied deletions are not remembered: all unsettled objects are reconsidered.
	c.state.enqueueUnsettled(nil)
	return true
}

// View calls read with the ownership graph, under its lock. The lock blocks observations and
// decisions, so read must be short; and it must not keep any part of the graph.
func (c *Collector) View(read func(g *ownership.Graph)) {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	read(c.state.graph)
}
