package daemonset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pauses before failed pods of a node are replaced. The first one is replaced at once.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Minute
)

// spot is where pods fail: a node, and the revision that they are of. A new template
// gets a new chance.
type spot struct {
	set  types.UID
	hash string
	node string
}

// pauses remember where pods fail again and again. They are safe for concurrent use.
type pauses struct {
	mu    sync.Mutex
	spots map[spot]pause // guarded by mu
}

type pause struct {
	length time.Duration
	until  time.Time
}

// left is how long the pause at a spot lasts yet; not positive when there is none.
func (p *pauses) left(at spot, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.spots[at]; ok {
		return known.until.Sub(now)
	}
	return 0
}

// failed begins a pause, twice as long as the one before. Where nothing has failed for
// the longest pause, that is forgotten.
func (p *pauses) failed(at spot, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, known := range p.spots {
		if now.Sub(known.until) > lastPause {
			delete(p.spots, other)
		}
	}
	length := firstPause
	if known, ok := p.spots[at]; ok {
		length = min(2*known.length, lastPause)
	}
	p.spots[at] = pause{length, now.Add(length)}
}
