package daemonset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Back-off before failed pods on a node are replaced. The first one is replaced at once.
const (
	firstBackoff = time.Second
	lastBackoff  = 15 * time.Minute
)

// backoffKey is the node and the revision of failed pods. A new template starts without a
// back-off.
type backoffKey struct {
	set  types.UID
	hash string
	node string
}

// backoffs records repeated failures of pods by node. It is safe for concurrent use.
type backoffs struct {
	mu    sync.Mutex
	byKey map[backoffKey]backoff // guarded by mu
}

type backoff struct {
	length time.Duration
	until  time.Time
}

// left returns the remaining back-off; zero or negative if it is over.
func (b *backoffs) left(at backoffKey, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.byKey[at]; ok {
		return known.until.Sub(now)
	}
	return 0
}

// failed starts a back-off, twice as long as the previous one. Back-offs that ended longer ago
// than the maximum back-off are forgotten.
func (b *backoffs) failed(at backoffKey, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other, known := range b.byKey {
		if now.Sub(known.until) > lastBackoff {
			delete(b.byKey, other)
		}
	}
	length := firstBackoff
	if known, ok := b.byKey[at]; ok {
		length = min(2*known.length, lastBackoff)
	}
	b.byKey[at] = backoff{length, now.Add(length)}
}
