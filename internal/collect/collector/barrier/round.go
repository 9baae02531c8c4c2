package barrier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// sharedListTimeout is the time that a batch waits for a list across namespaces, which a single
// namespace may delay, before it makes its own.
const sharedListTimeout = 2 * time.Second

// round is one reading of every kind that could hold a dependent of the owners in it. Each batch
// ends when its own lists are read.
type round struct {
	barrier      *Barrier
	batches      []*batch
	withoutLists bool
	shared       map[ownership.Kind]*sharedReading // lists across namespaces, which serve all batches
}

// batch is the part of a round for one namespace.
type batch struct {
	namespace string // "" when the owners are cluster-scoped
	waiters   []*waiter
	began     int // the number of the last change then
	epoch     int
	served    served
	scope     []ownership.Kind       // the kinds that could hold dependents
	kinds     []ownership.Kind       // the ones of which an owner needs a list
	index     map[ownership.Kind]int // of the kinds that need a proof, into readings
	readings  []reading
}

// served has the kinds that could hold dependents. After an error they are unknown.
type served struct {
	feed.Watched
	outages outages // of the group versions in Unknown
	err     error
}

type sharedReading struct {
	reading
	done chan struct{} // closed when it is over
}

// reading is the result of listing one kind. The zero value stands for a kind whose watch has
// caught up: it was not read because nothing can have been missed.
type reading struct {
	found   map[ownership.UID][]ownership.Object // dependents, by owner
	partial bool                                 // given up, because there were more objects than expected
	err     error
}

// run makes a round. Unless the barrier is open it starts no goroutine.
func (r *round) run(ctx context.Context) {
	b := r.barrier
	b.rounds.Add(1)
	// A kind that is served has to be known here before its first dependent can be
	// missed, and the feed's own discovery lags.
	epoch := b.config.Graph.Epoch()
	watched, err := b.config.Reader.Survey(ctx)
	outages := r.readOutages(ctx, watched.Unknown)
	for _, batch := range r.batches {
		batch.epoch = epoch
		batch.prepare(served{watched, outages, err})
	}
	kinds := r.kinds()
	caughtUp := b.caughtUp(ctx, kinds)
	r.withoutLists = len(kinds) > 0 && len(caughtUp) == len(kinds)
	for _, batch := range r.batches {
		batch.kinds = slices.DeleteFunc(batch.kinds, func(kind ownership.Kind) bool { return caughtUp[kind] })
	}
	r.shared = make(map[ownership.Kind]*sharedReading)
	lists := sharedLists(r.batches, b.config.Graph.Count)
	for _, l := range lists {
		r.shared[l.kind] = &sharedReading{done: make(chan struct{})}
	}
	if !b.isOpen() {
		r.readShared(ctx, lists, 1)
		for _, batch := range r.batches {
			r.serve(ctx, batch, 1)
		}
		return
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { r.readShared(ctx, lists, b.config.Lists) })
	for _, batch := range r.batches {
		parts.Go(func() { r.serve(ctx, batch, b.config.Lists) })
	}
}

// owners returns how many owners the round serves.
func (r *round) owners() int {
	n := 0
	for _, batch := range r.batches {
		n += len(batch.waiters)
	}
	return n
}

// prepare determines the kinds to read for the owners of a batch.
func (t *batch) prepare(s served) {
	t.served = s
	t.scope = s.Namespaced
	if t.namespace == "" {
		t.scope = slices.Concat(s.Namespaced, s.Cluster)
	}
	t.index = make(map[ownership.Kind]int)
	for _, w := range t.waiters {
		for _, kind := range w.needs(t.scope) {
			if _, ok := t.index[kind]; !ok {
				t.index[kind] = len(t.kinds)
				t.kinds = append(t.kinds, kind)
			}
		}
	}
	t.readings = make([]reading, len(t.kinds))
}

// kinds returns the kinds to read for any of the batches, sorted.
func (r *round) kinds() []ownership.Kind {
	var kinds []ownership.Kind
	seen := make(map[ownership.Kind]bool)
	for _, batch := range r.batches {
		for _, kind := range batch.kinds {
			if !seen[kind] {
				seen[kind] = true
				kinds = append(kinds, kind)
			}
		}
	}
	slices.SortFunc(kinds, func(a, b ownership.Kind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// readShared makes the lists that serve all batches.
func (r *round) readShared(ctx context.Context, lists []listPlan, limit int) {
	owners := make(map[ownership.UID]*waiter)
	for _, batch := range r.batches {
		batch.addOwners(owners)
	}
	forEach(limit, lists, func(l listPlan) {
		shared := r.shared[l.kind]
		defer close(shared.done)
		shared.reading = r.barrier.list(ctx, listing{listPlan: l, owners: owners})
	})
}

// serve reads the kinds that a batch needs, and finishes it.
func (r *round) serve(ctx context.Context, t *batch, limit int) {
	var own []ownership.Kind // kinds of which the batch makes its own lists
	for _, kind := range t.kinds {
		reading, ok := r.awaitShared(ctx, kind, t)
		if !ok {
			own = append(own, kind)
		}
		t.readings[t.index[kind]] = reading
	}
	owners := make(map[ownership.UID]*waiter)
	t.addOwners(owners)
	forEach(limit, own, func(kind ownership.Kind) {
		l := listPlan{kind: kind, probe: t.namespace == "" && r.barrier.config.Graph.Count(kind) > pageSize}
		t.readings[t.index[kind]] = r.barrier.list(ctx, listing{listPlan: l, namespace: t.namespace, owners: owners})
	})
	r.barrier.finish(ctx, t)
}

// awaitShared waits for the list across namespaces, if one is made of this kind. It returns false
// if the batch has to make its own list: a namespace that cannot be read, is slow to read, or has
// too many objects must not delay the others.
func (r *round) awaitShared(ctx context.Context, kind ownership.Kind, t *batch) (reading, bool) {
	shared := r.shared[kind]
	if shared == nil || t.namespace == "" {
		return reading{}, false
	}
	select {
	case <-shared.done:
		return shared.reading, shared.err == nil && !shared.partial
	default:
	}
	select {
	case <-shared.done:
		return shared.reading, shared.err == nil && !shared.partial
	case <-r.barrier.config.Clock.After(sharedListTimeout):
	case <-ctx.Done():
	}
	return reading{}, false
}

func (t *batch) addOwners(owners map[ownership.UID]*waiter) {
	for _, w := range t.waiters {
		owners[w.owner.UID] = w
	}
}

// forEach calls f for all, at most limit at the same time. With a limit of 1 it starts no
// goroutine.
func forEach[T any](limit int, all []T, f func(one T)) {
	_ = pace.Each(limit, all, func(one T) error {
		f(one)
		return nil
	})
}

// maxWhy bounds the kept part of a server's error, in bytes.
const maxWhy = 512

// finding is the result of a round for one owner.
type finding struct {
	unproven []ownership.Kind
	holds    []report.Hold
	delay    time.Duration
}

// delayFor respects the delay that the server has requested.
func (f *finding) delayFor(err error) {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.delay = max(f.delay, time.Duration(seconds)*time.Second)
	}
}

// evaluate determines from the readings what holds an owner, if anything does.
func (t *batch) evaluate(w *waiter, graph Graph) finding {
	var f finding
	for _, kind := range w.needs(t.scope) {
		r := &t.readings[t.index[kind]]
		if why := t.doubts(r, w, graph); why != "" {
			f.unproven = append(f.unproven, kind)
			f.holds = append(f.holds, report.Hold{What: kind.String(), Why: ownership.Excerpt(why, maxWhy)})
			f.delayFor(r.err)
		}
	}
	for _, groupVersion := range t.served.Unknown {
		if t.served.outages.holds(groupVersion, w) {
			f.holds = append(f.holds, report.Hold{What: groupVersion, Why: ownership.Excerpt(t.served.outages.why(groupVersion), maxWhy)})
		}
	}
	switch {
	case t.served.err != nil:
		f.holds = append(f.holds, report.Hold{What: "discovery", Why: ownership.Excerpt(t.served.err.Error(), maxWhy)})
		f.delayFor(t.served.err)
	case len(t.scope) == 0:
		f.holds = append(f.holds, report.Hold{What: "discovery", Why: "the resources of the server are unknown"})
	}
	return f
}

// doubts returns why a reading proves nothing about an owner; "" when it proves that
// nothing was missed.
func (t *batch) doubts(r *reading, w *waiter, graph Graph) string {
	if r.err != nil {
		return r.err.Error()
	}
	missed := 0
	for _, dependent := range r.found[w.owner.UID] {
		if !graph.Confirm(t.epoch, dependent) {
			missed++
		}
	}
	if missed == 0 {
		return ""
	}
	return fmt.Sprintf("has dependents that its watch has not shown yet: %d", missed)
}
