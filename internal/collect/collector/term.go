package collector

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A term is one call of Run. Before the first term and between terms, the collector may observe for months without
// deciding: a replica that stands by keeps its graph up to date. Meanwhile its queue is shut down and forgets all keys,
// and a term begins with a search of the graph for the objects that may need an action. An object that changes after the
// search has passed it is queued because of the change.
//
// What a former term has concluded from its own requests begins anew, since others may have led meanwhile:
//
//   - the versions that it has written: the objects are decided on again. At worst that sends a request whose
//     precondition fails
//   - the proofs of the barrier
//   - the owners that were read live and are not observed: they are read again
//   - the refused objects, and those that wait for their back-off: they are decided on again
//
// The graph stays. Its evidence of absence is a DELETED event, or an answer of the server about a UID, whoever leads.

// term is the state of the search. The zero value is that of a collector whose Run was not called.
type term struct{ searched atomic.Bool }

// isSearching reports whether there may be objects to be reconsidered that are not in the queue.
func (c *Collector) isSearching() bool {
	if c.state.crowded.Load() {
		return true
	}
	q, ok := c.queue.(*queue.Reopening)
	return ok && q.Forgets() && !c.term.searched.Load()
}

// beginTerm forgets the conclusions of the former term, and queues the objects that they were about.
func (c *Collector) beginTerm() {
	c.barrier.NewEpoch()
	c.work.forget()
	c.places.forget()
	c.queue.Add(c.state.beginTerm()...)
}

func (c *Collector) endTerm() {
	c.term.searched.Store(false)
	c.state.endTerm()
}

// search queues the objects that may need an action.
func (c *Collector) search(ctx context.Context) {
	c.state.enqueueUnsettled(ctx.Done())
	if ctx.Err() == nil {
		c.term.searched.Store(true)
	}
}

// beginTerm forgets which objects were written, and returns the owners that were read live and the refused objects.
func (s *state) beginTerm() []ownership.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inTerm = true
	clear(s.written)
	uids := s.refused.UIDs()
	for uid := range s.presumed {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

func (s *state) endTerm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inTerm = false
}

// enqueueUnsettled queues all objects that may need an action, until end is closed. It releases the lock again and again.
func (s *state) enqueueUnsettled(end <-chan struct{}) {
	for from := (ownership.Cursor{}); !from.AtEnd(); {
		var uids []ownership.UID
		s.mu.Lock()
		uids, from = s.graph.Unsettled(from)
		s.mu.Unlock()
		s.queue.Add(uids...)
		select {
		case <-end:
			return
		default:
		}
	}
}
