package etcd

import (
	"context"
	"strconv"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Watches that end together, while events arrive for all of them and their progress is requested,
// do not block the stream that they share.
func TestWatchesThatEndTogetherDoNotBlockTheirStream(t *testing.T) {
	const watches, rounds = 100, 20
	s := open(t)
	writing, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		for i := 0; writing.Err() == nil; i++ {
			_, _ = s.client.Put(writing, "/busy/key", strconv.Itoa(i))
			_ = s.client.RequestProgress(writing)
		}
	})
	t.Cleanup(func() {
		stop()
		busy.Wait()
	})
	for round := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
		var opened []clientv3.WatchChan
		for range watches {
			opened = append(opened, s.client.Watch(ctx, "/busy/", clientv3.WithPrefix()))
		}
		for _, w := range opened {
			if _, ok := <-w; !ok || ctx.Err() != nil {
				t.Fatalf("round %d: a watch has no event", round)
			}
		}
		cancel()
	}
}
