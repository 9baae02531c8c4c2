package etcd

import (
	"context"
	"sync"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// R29: the recycle bin learns how far it has come, although nothing is removed. The progress never overtakes a removal.
func TestR29_RemovalsReportTheirProgress(t *testing.T) {
	s := open(t)
	after, err := s.Revision(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	requests := make(chan struct{}, 1)
	var mu sync.Mutex
	upTo, found := int64(0), 0
	var running sync.WaitGroup
	running.Go(func() {
		_ = s.Removals(ctx, after, requests, func(removed []Removal, reached int64) error {
			mu.Lock()
			defer mu.Unlock()
			upTo, found = reached, found+len(removed)
			return nil
		})
	})
	defer running.Wait()
	defer cancel()
	for n := range 20 {
		s.put(t, "/configmaps/team/a", "x")
		s.remove(t, "/configmaps/team/a")
		last := s.put(t, "/configmaps/team/b", "x")
		eventually.Holds(t, "the removals have reached the last write", func() bool {
			select {
			case requests <- struct{}{}:
			default:
			}
			mu.Lock()
			defer mu.Unlock()
			return upTo >= last
		})
		mu.Lock()
		if found != n+1 {
			t.Errorf("up to revision %d there are %d removals, want %d", upTo, found, n+1)
		}
		mu.Unlock()
	}
}
