package storage

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// timersSeen is a clock that records the durations of its timers.
type timersSeen struct {
	clock.RealClock

	mu    sync.Mutex
	times map[time.Duration]bool // guarded by mu
}

func (c *timersSeen) NewTimer(d time.Duration) clock.Timer {
	c.add(d)
	return timerSeen{c.RealClock.NewTimer(d), c}
}

func (c *timersSeen) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[d] = true
}

func (c *timersSeen) has(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times[d]
}

type timerSeen struct {
	clock.Timer
	seen *timersSeen
}

func (t timerSeen) Reset(d time.Duration) bool {
	t.seen.add(d)
	return t.Timer.Reset(d)
}

// The watch cache of k8s.io/apiserver requests the progress of its watch by a timer of its
// configured clock, with the interval that progressClock expects.
func TestCacheRequestsProgressByItsClock(t *testing.T) {
	s := open(t)
	seen := &timersSeen{times: map[time.Duration]bool{}}
	s.cacheClock = seen
	quiet := s.configMapStorage(t)
	quiet.watchFrom(t, t.Context(), "")
	must(t, quiet.listConsistently())
	eventually.Holds(t, "the cache sets a timer of "+cacherProgressInterval.String(), func() bool { return seen.has(cacherProgressInterval) })
	if shortened(cacherProgressInterval) != progressInterval || shortened(time.Second) != time.Second {
		t.Error("it is not this interval alone that is shortened")
	}
}

// listConsistently lists the latest state of a resource.
func (o objects) listConsistently() error {
	return o.GetList(context.Background(), o.prefix, apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything}, &corev1.ConfigMapList{})
}

// BenchmarkConsistentList lists a quiet resource while another is written: with the default clock
// of the caches, and with ours.
func BenchmarkConsistentList(b *testing.B) {
	for name, cacheClock := range map[string]clock.WithTicker{"upstream": clock.RealClock{}, "progressClock": progressClock{}} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			s.cacheClock = cacheClock
			quiet := s.configMapStorage(b)
			quiet.watchFrom(b, b.Context(), "")
			must(b, quiet.listConsistently())
			for b.Loop() {
				_, err := s.store.Client().Put(context.Background(), "/busy", "")
				must(b, err)
				must(b, quiet.listConsistently())
			}
		})
	}
}
