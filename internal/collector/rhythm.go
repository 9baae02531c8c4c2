package collector

import (
	"context"
	"sync"
	"time"
)

// open leaves the rounds to run.
func (b *barrier) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hints = make(chan struct{}, 1)
}

func (b *barrier) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hints != nil
}

// run makes rounds until ctx ends, one after the other, so that those who come
// during a round share the next; but a round that takes long holds up only those
// whose namespace it reads.
func (b *barrier) run(ctx context.Context) {
	var rounds sync.WaitGroup
	defer rounds.Wait()
	timer := b.clock.NewTimer(0)
	defer timer.Stop()
	rest := func(d time.Duration, until <-chan struct{}) (came bool) {
		timer.Reset(d)
		select {
		case <-timer.C():
		case <-until:
			return true
		case <-ctx.Done():
		}
		return false
	}
	<-timer.C()
	for pace := (rhythm{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-b.hints:
		}
		for d := pace.begin(b.clock.Now()); d > 0; d = pace.begin(b.clock.Now()) {
			rest(d, nil)
			if ctx.Err() != nil {
				return
			}
		}
		if r := b.next(); r != nil {
			began, over := b.clock.Now(), make(chan struct{})
			rounds.Go(func() {
				defer close(over)
				r.run(ctx)
			})
			if rest(longestRound, over) && r.light {
				pace.tookNoLists()
			} else {
				pace.took(b.clock.Since(began))
			}
		}
	}
}

// rhythm keeps rounds from following each other so closely that each serves one
// owner only, and from taking more than a third of the time: a few may begin at
// once, then one in each period.
type rhythm struct {
	left   int       // rounds that may begin at once
	at     time.Time // up to when left was counted
	period time.Duration
}

const (
	roundsAtOnce  = 5
	shortestRound = 100 * time.Millisecond
	lightRound    = 25 * time.Millisecond // without lists
	longestRound  = time.Second
)

// begin tells how long to wait; when that is zero a round begins now.
func (r *rhythm) begin(now time.Time) time.Duration {
	if r.at.IsZero() {
		*r = rhythm{left: roundsAtOnce, at: now, period: shortestRound}
	}
	earned := int(now.Sub(r.at) / r.period)
	r.at = r.at.Add(time.Duration(earned) * r.period)
	r.left = min(r.left+earned, roundsAtOnce)
	if r.left == 0 {
		return r.at.Add(r.period).Sub(now)
	}
	r.left--
	return 0
}

// took takes in how long a round took: where rounds take long, they are made less often.
func (r *rhythm) took(d time.Duration) {
	r.period = max(shortestRound, min(3*d, longestRound))
}

// tookNoLists takes in that a round was one question to the server, and no list.
func (r *rhythm) tookNoLists() { r.period = lightRound }
