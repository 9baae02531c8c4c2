package barrier

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// The schedule of the rounds, and the owners that each serves.

const (
	// roundsAtOnce is the number of rounds that may begin without a wait after a quiet time.
	roundsAtOnce = 5
	// shortestPeriod and longestPeriod bound the time from one round to the next when there are
	// more.
	shortestPeriod = 100 * time.Millisecond
	longestPeriod  = time.Second
	// longestWithoutLists bounds the time from a round that needed no list to the next.
	longestWithoutLists = 25 * time.Millisecond
	// ownerPeriod is the part of that time for each owner that the round served: many owners that arrive in
	// succession share a round, and the levels of a chain, which arrive one at a time, hardly wait.
	ownerPeriod = time.Millisecond
	// maxBatches bounds the namespaces that one round serves, and so its memory.
	maxBatches = 500
	// eventAfter is the number of rounds that hold an owner before an Event reports it. Most
	// kinds that cannot be read can be read a moment later; this is after a second or so.
	eventAfter = 8
)

// rhythm keeps rounds from following each other so closely that each serves one owner only,
// and from taking more than a third of the time: a few may begin at once, then one in each
// period.
type rhythm struct{ limiter *rate.Limiter }

func newRhythm() rhythm { return rhythm{rate.NewLimiter(rate.Every(shortestPeriod), roundsAtOnce)} }

// next returns how long to wait before the next round.
func (r rhythm) next(now time.Time) time.Duration { return r.limiter.ReserveN(now, 1).DelayFrom(now) }

// took adapts the period to a round that was made: the longer rounds take, the fewer are made.
func (r rhythm) took(now time.Time, d time.Duration) {
	r.limiter.SetLimitAt(now, rate.Every(max(shortestPeriod, min(3*d, longestPeriod))))
}

// tookNoLists adapts the period to a round that needed no list: such rounds take half of the time at most.
func (r rhythm) tookNoLists(now time.Time, d time.Duration, owners int) {
	period := max(2*d, time.Duration(owners)*ownerPeriod, ownerPeriod)
	r.limiter.SetLimitAt(now, rate.Every(min(period, longestWithoutLists)))
}

// Open leaves the rounds to Run, which has to be called next.
func (b *Barrier) Open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued = make(chan struct{}, 1)
}

func (b *Barrier) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queued != nil
}

// Run makes rounds until ctx ends, one after the other, so that the owners that come
// during a round share the next; but a round that takes more than longestPeriod holds up
// only the owners whose namespace it reads.
func (b *Barrier) Run(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	clock := b.config.Clock
	for rhythm := newRhythm(); ; {
		select {
		case <-ctx.Done():
			return
		case <-b.queued:
		}
		if d := rhythm.next(clock.Now()); d > 0 {
			select {
			case <-ctx.Done():
				return
			case <-clock.After(d):
			}
		}
		r := b.nextRound()
		if r == nil {
			continue
		}
		began, done := clock.Now(), make(chan struct{})
		rounds.Go(func() {
			defer close(done)
			r.run(ctx)
		})
		withoutLists := false
		select {
		case <-done:
			withoutLists = r.withoutLists
		case <-clock.After(longestPeriod):
		case <-ctx.Done():
		}
		if withoutLists {
			rhythm.tookNoLists(clock.Now(), clock.Since(began), r.owners())
		} else {
			rhythm.took(clock.Now(), clock.Since(began))
		}
	}
}

// startRounds starts rounds until no owner is queued: in Run, or here if the barrier is not open.
func (b *Barrier) startRounds(ctx context.Context) {
	if b.isOpen() {
		b.signal()
		return
	}
	for r := b.nextRound(); r != nil; r = b.nextRound() {
		r.run(ctx)
	}
}

// signal tells Run that an owner is queued.
func (b *Barrier) signal() {
	select {
	case b.queued <- struct{}{}:
	default: // Run has not seen the last signal yet
	}
}

// nextRound takes the queues of the namespaces that no round is reading, the least
// recently served ones first. It returns nil when no owner is queued.
func (b *Barrier) nextRound() *round {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []string
	for namespace, q := range b.queues {
		if !q.reading && len(q.waiters) > 0 {
			ready = append(ready, namespace)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	slices.SortFunc(ready, func(x, y string) int { return cmp.Compare(b.queues[x].number, b.queues[y].number) })
	r := &round{barrier: b}
	for _, namespace := range ready[:min(len(ready), maxBatches)] {
		q, batch := b.queues[namespace], &batch{namespace: namespace, began: b.changes.last}
		for _, w := range q.waiters {
			if b.waiters[w.owner.UID] == w { // else it was forgotten
				batch.waiters = append(batch.waiters, w)
			}
		}
		b.sequence++
		q.waiters, q.reading, q.number = nil, true, b.sequence
		r.batches = append(r.batches, batch)
	}
	if len(ready) > maxBatches && b.queued != nil {
		b.signal()
	}
	return r
}

// finish ends the reading for a namespace: its owners are proven or held, and requeued.
func (b *Barrier) finish(ctx context.Context, batch *batch) {
	findings := make([]finding, len(batch.waiters))
	for i, w := range batch.waiters {
		findings[i] = batch.evaluate(w, b.config.Graph)
	}
	b.mu.Lock()
	var owners []ownership.UID
	var events []func()
	for i, w := range batch.waiters {
		if b.waiters[w.owner.UID] != w {
			continue // forgotten meanwhile
		}
		owners = append(owners, w.owner.UID)
		w.read, w.unproven, w.holds, w.delay = batch.scope, findings[i].unproven, findings[i].holds, findings[i].delay
		if len(w.holds) == 0 {
			w.stage = proven
			continue
		}
		w.stage = held
		if b.changes.affect(w.unproven, batch.began) {
			w.stage = idle // the change came too late for this round: another one, at once
		}
		w.attempts++
		b.holds.Add(1)
		if w.attempts == eventAfter && b.config.Blocked != nil {
			message := HeldError{Finalizer: w.finalizer, Holds: w.holds}.Error()
			events = append(events, func() { b.config.Blocked(ctx, w.owner, message) })
		}
	}
	q := b.queues[batch.namespace]
	q.reading = false
	more := len(q.waiters) > 0 && b.queued != nil // else the caller of Prove checks again
	if len(q.waiters) == 0 {
		delete(b.queues, batch.namespace)
	}
	b.mu.Unlock()

	b.config.Requeue(owners...)
	if more {
		b.startRounds(ctx)
	}
	for _, event := range events {
		event()
	}
}
