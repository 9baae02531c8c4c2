package collector

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// patience is how long a turn waits for a list across namespaces, which one
// namespace may delay, before it makes its own.
const patience = 2 * time.Second

// round is one reading of all that could hold dependents of those in line. Each
// lane has its turn, which ends when its own lists are in.
type round struct {
	barrier *barrier
	turns   []*turn
	shown   map[ownership.Kind]bool           // kinds of which no list is needed
	light   bool                              // no list was needed at all
	shared  map[ownership.Kind]*sharedReading // lists across namespaces, which serve all turns
}

// turn is one lane's part of a round.
type turn struct {
	namespace string // "" when the owners are cluster-scoped
	members   []*wait
	began     int // the newest news then
	epoch     int
	survey    survey
	scope     []ownership.Kind       // the kinds that could hold dependents
	kinds     []ownership.Kind       // those of them of which a member needs a list
	index     map[ownership.Kind]int // of what is read or shown, into readings
	readings  []reading
}

// survey is what could hold dependents. After an error nothing is known of it.
type survey struct {
	feed.Watched
	err error
}

// sharedReading is one that others wait for.
type sharedReading struct {
	reading
	done chan struct{} // closed when it is over
}

// reading is what a list of one kind showed.
type reading struct {
	found   map[ownership.UID][]ownership.Object
	partial bool // given up, because there was more than was thought
	err     error
}

// run makes a round. Unless the barrier is open it starts no goroutine.
func (r *round) run(ctx context.Context) {
	b := r.barrier
	b.stats.rounds.Add(1)
	// A kind that is served has to be known here before its first dependent can be
	// missed, and the feed's own discovery lags.
	epoch := b.state.currentEpoch()
	found, err := b.api.Survey(ctx)
	for _, t := range r.turns {
		t.epoch = epoch
		t.prepare(survey{found, err})
	}
	kinds := r.kinds()
	r.shown = b.shown(ctx, kinds)
	r.light = len(kinds) > 0 && len(r.shown) == len(kinds)
	for _, t := range r.turns {
		t.omit(r.shown)
	}
	r.shared = make(map[ownership.Kind]*sharedReading)
	lists := sharedLists(r.turns, b.state.count)
	for _, l := range lists {
		r.shared[l.kind] = &sharedReading{done: make(chan struct{})}
	}
	if !b.isOpen() {
		r.readShared(ctx, lists, 1)
		for _, t := range r.turns {
			r.take(ctx, t, 1)
		}
		return
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { r.readShared(ctx, lists, b.width) })
	for _, t := range r.turns {
		parts.Go(func() { r.take(ctx, t, b.width) })
	}
}

// prepare finds out what has to be read for the members of a turn.
func (t *turn) prepare(s survey) {
	t.survey = s
	t.scope = s.Namespaced
	if t.namespace == "" {
		t.scope = slices.Concat(s.Namespaced, s.Cluster)
	}
	t.index = make(map[ownership.Kind]int)
	for _, w := range t.members {
		for _, kind := range w.needs(t.scope) {
			if _, ok := t.index[kind]; !ok {
				t.index[kind] = len(t.kinds)
				t.kinds = append(t.kinds, kind)
			}
		}
	}
	t.readings = make([]reading, len(t.kinds))
}

// omit takes out the kinds of which the watches have shown everything: to have read
// nothing of them is to have missed nothing.
func (t *turn) omit(shown map[ownership.Kind]bool) {
	t.kinds = slices.DeleteFunc(t.kinds, func(kind ownership.Kind) bool { return shown[kind] })
}

// needs tells which of the kinds are still to be read for an owner: all at first,
// then those that have proved nothing, and those that have joined since.
func (w *wait) needs(kinds []ownership.Kind) []ownership.Kind {
	if w.read == nil {
		return kinds
	}
	var need []ownership.Kind
	for _, kind := range kinds {
		if slices.Contains(w.left, kind) || !slices.Contains(w.read, kind) {
			need = append(need, kind)
		}
	}
	return need
}

// readShared makes the lists that serve all turns.
func (r *round) readShared(ctx context.Context, lists []listPlan, width int) {
	interest := make(map[ownership.UID]*wait)
	for _, t := range r.turns {
		t.interest(interest)
	}
	_ = each(width, lists, func(l listPlan) error {
		shared := r.shared[l.kind]
		defer close(shared.done)
		shared.reading = r.barrier.list(ctx, listing{listPlan: l, interest: interest})
		return nil
	})
}

// take reads all that a turn needs, and ends it.
func (r *round) take(ctx context.Context, t *turn, width int) {
	var own []ownership.Kind // kinds of which the turn makes its own lists
	for _, kind := range t.kinds {
		reading, ok := r.await(ctx, kind, t)
		if !ok {
			own = append(own, kind)
		}
		t.readings[t.index[kind]] = reading
	}
	interest := make(map[ownership.UID]*wait)
	t.interest(interest)
	_ = each(width, own, func(kind ownership.Kind) error {
		l := listPlan{kind: kind, probe: t.namespace == "" && r.barrier.state.count(kind) > pageSize}
		t.readings[t.index[kind]] = r.barrier.list(ctx, listing{listPlan: l, namespace: t.namespace, interest: interest})
		return nil
	})
	r.barrier.conclude(ctx, t)
}

// await waits for the list across namespaces, if one is made of this kind. It
// returns false when the turn has to make its own: one namespace that cannot be
// read, or not quickly, or has too much in it, must not hold the others.
func (r *round) await(ctx context.Context, kind ownership.Kind, t *turn) (reading, bool) {
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
	case <-r.barrier.clock.After(patience):
	case <-ctx.Done():
	}
	return reading{}, false
}

func (t *turn) interest(interest map[ownership.UID]*wait) {
	for _, w := range t.members {
		interest[w.owner.UID] = w
	}
}

// finding is what a round has found out about one owner.
type finding struct {
	left  []ownership.Kind
	holds []Hold
	delay time.Duration
}

// heed takes in how long an answer says to stay away.
func (f *finding) heed(err error) {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.delay = max(f.delay, time.Duration(seconds)*time.Second)
	}
}

// judge finds out from what was read what holds an owner, if anything does.
func (t *turn) judge(w *wait, b *barrier) finding {
	var f finding
	for _, kind := range w.needs(t.scope) {
		r := &t.readings[t.index[kind]]
		if why := t.doubts(r, w, b); why != "" {
			f.left = append(f.left, kind)
			f.holds = append(f.holds, Hold{What: kind.String(), Why: why})
			f.heed(r.err)
		}
	}
	for _, groupVersion := range t.survey.Unknown {
		f.holds = append(f.holds, Hold{What: groupVersion, Why: "its discovery fails, so it is not known what it serves"})
	}
	switch {
	case t.survey.err != nil:
		f.holds = append(f.holds, Hold{What: "discovery", Why: t.survey.err.Error()})
		f.heed(t.survey.err)
	case len(t.scope) == 0:
		f.holds = append(f.holds, Hold{What: "discovery", Why: "it is not known what the server serves"})
	}
	return f
}

// doubts tells why a reading proves nothing about an owner, in words, if so.
func (t *turn) doubts(r *reading, w *wait, b *barrier) string {
	if r.err != nil {
		return r.err.Error()
	}
	missed := 0
	for _, dependent := range r.found[w.owner.UID] {
		if !b.state.confirm(t.epoch, dependent) {
			missed++
		}
	}
	if missed == 0 {
		return ""
	}
	return fmt.Sprintf("has %d dependents that its watch has not shown yet", missed)
}

// isDependent tells whether a reference that an object makes would hold the
// owner. A reference under another kind may, too: only the graph can tell (R6).
func (w *wait) isDependent(o *ownership.Object, r *ownership.Reference) bool {
	switch {
	case r.Name != w.owner.Name, w.owner.Namespace != "" && w.owner.Namespace != o.Namespace:
		return false
	case w.finalizer == ownership.FinalizerOrphan:
		return o.UID != w.owner.UID // its own reference goes with it
	default:
		return r.Blocking()
	}
}
