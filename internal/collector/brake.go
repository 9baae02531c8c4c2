package collector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// ReasonPaused is the reason of the Event about the object at whose deletion the
// breaker paused those of its kind.
const ReasonPaused = "GarbageCollectionPaused"

// brake is the breaker for many workers, with the time.
type brake struct {
	clock clock.PassiveClock
	state *state

	mu      sync.Mutex
	breaker *breaker // guarded by mu
}

// ask asks for permission to delete an object of a kind.
func (b *brake) ask(kind ownership.Kind) permission {
	if b.off() {
		return granted
	}
	objects := b.state.count(kind)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.breaker.ask(kind, objects, b.clock.Now())
}

func (b *brake) giveBack(kind ownership.Kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.breaker.giveBack(kind, b.clock.Now())
}

func (b *brake) resume(kind ownership.Kind) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.breaker.resume(kind, b.clock.Now())
}

func (b *brake) pauses() []Pause {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.breaker.pauses()
}

// off needs no lock: the config never changes.
func (b *brake) off() bool { return b.breaker.config.Share <= 0 }

// Resume lets the deletions of a kind go on that the breaker has paused, without
// counting them for one window. It returns false when they were not paused.
func (c *Collector) Resume(kind ownership.Kind) bool {
	if !c.brake.resume(kind) {
		return false
	}
	c.log.Info("deletions resumed", "kind", kind.String())
	// Nobody remembers which objects were refused: all that needs a look has one.
	c.state.change(func(g *ownership.Graph) []ownership.UID { return g.Unsettled() })
	return true
}

// tellPaused says, once, that the deletions of a kind are paused.
func (c *Collector) tellPaused(ctx context.Context, self ownership.Object) {
	c.stats.tripped.Add(1)
	for _, p := range c.brake.pauses() {
		if p.Kind != self.Kind.String() {
			continue
		}
		c.log.WarnContext(ctx, "deletions paused", "kind", p.Kind, "deleted", p.Deleted, "objects", p.Objects)
		c.warn(ctx, self, ReasonPaused, fmt.Sprintf(
			"deletions of %s are paused: %d of %d objects were collected within %s. They go on when somebody resumes them",
			p.Kind, p.Deleted, p.Objects, c.brake.window()))
	}
}

func (b *brake) window() time.Duration { return b.breaker.config.Window }
