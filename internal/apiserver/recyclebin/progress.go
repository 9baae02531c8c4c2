package recyclebin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// catchUpLimit bounds the time that a request waits for the bin to have all removals before the request.
	catchUpLimit = 5 * time.Second
	// firstProgressRequest is how long a request waits before it requests the progress from etcd. The interval doubles
	// with each further request.
	firstProgressRequest = time.Millisecond
)

// progress is the revision up to which the bin has all removals. It is safe for concurrent use.
type progress struct {
	// requests makes etcd report a revision, although it has no removals.
	requests chan struct{}

	mu    sync.Mutex
	upTo  int64         // guarded by mu; 0 until Follow begins
	moved chan struct{} // guarded by mu; closed and replaced at each change
}

func newProgress() *progress {
	return &progress{requests: make(chan struct{}, 1), moved: make(chan struct{})}
}

func (p *progress) set(upTo int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upTo = upTo
	close(p.moved)
	p.moved = make(chan struct{})
}

// get returns the revision, and a channel that is closed when it changes.
func (p *progress) get() (upTo int64, moved <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upTo, p.moved
}

func (p *progress) request() {
	select {
	case p.requests <- struct{}{}:
	default: // another request is waiting
	}
}

// behind is the error for a bin that lacks removals before the request.
type behind struct{ upTo, now int64 }

func (b behind) Error() string {
	return fmt.Sprintf("the recycle bin is behind: it has the objects that were deleted up to revision %d of %d; try again in a moment (the log of the server has the reason if this goes on)", b.upTo, b.now)
}

func isBehind(err error) bool {
	_, is := errors.AsType[behind](err)
	return is
}

// catchUp waits until the bin has all removals up to the current revision: without the last ones, an answer would be a
// part of a deletion, and would look complete. Its error is behind if that takes too long.
func (b *Bin) catchUp(ctx context.Context) error {
	now, err := b.current(ctx)
	if err != nil {
		return err
	}
	interval := firstProgressRequest
	limit, next := b.clock.NewTimer(catchUpLimit), b.clock.NewTimer(interval)
	defer limit.Stop()
	defer next.Stop()
	for {
		upTo, moved := b.progress.get()
		if upTo >= now {
			return nil
		}
		select {
		case <-moved:
		case <-next.C():
			b.progress.request()
			interval *= 2
			next.Reset(interval)
		case <-limit.C():
			return behind{upTo, now}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
