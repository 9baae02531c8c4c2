package queue

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	shortestBackoff = 5 * time.Millisecond
	longestBackoff  = 60 * time.Second
	// longestBackoff is reached after this many doublings of the shortest.
	maxDoublings = 14
)

// backoff computes how long a key that failed has to wait. It implements
// workqueue.TypedRateLimiter. client-go's own limiter has no jitter.
type backoff struct {
	jitter func() float64 // in [0,1)

	mu       sync.Mutex
	failures map[key]int // guarded by mu; a key is in it from its first failure until it is forgotten
}

func newBackoff(jitter func() float64) *backoff {
	if jitter == nil {
		jitter = rand.Float64
	}
	return &backoff{jitter: jitter, failures: make(map[key]int)}
}

// When counts one more failure and returns the wait that follows it.
func (b *backoff) When(k key) time.Duration {
	b.mu.Lock()
	failed := b.failures[k]
	b.failures[k] = failed + 1
	b.mu.Unlock()

	full := min(shortestBackoff<<min(failed, maxDoublings), longestBackoff)
	// Up to a fifth of each wait is left out at random: keys that failed together, because
	// the server was unavailable, do not come back together.
	return full - time.Duration(b.jitter()*float64(full)/5)
}

// Forget makes the next failure of a key its first.
func (b *backoff) Forget(k key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, k)
}

// NumRequeues returns the number of failures since the key was last forgotten.
func (b *backoff) NumRequeues(k key) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures[k]
}
