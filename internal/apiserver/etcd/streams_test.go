package etcd

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// A watch that begins in the past does not report the current revision before it has received the
// events in between.
func TestProgressDoesNotOvertakeEvents(t *testing.T) {
	t.Parallel()
	const rounds = 40 // of 100 ms each, the interval in which etcd syncs watches from the past
	s := open(t)
	background := SeparateStreams("pods")(t.Context())
	put, err := s.client.Put(t.Context(), "/streams/key", "")
	if err != nil {
		t.Fatal(err)
	}
	written := put.Header.Revision
	requesting, stop := context.WithCancel(background)
	var requests sync.WaitGroup
	requests.Go(func() {
		for requesting.Err() == nil {
			_ = s.client.RequestProgress(requesting)
		}
	})
	t.Cleanup(func() {
		stop()
		requests.Wait()
	})
	for round := range rounds {
		ctx, cancel := context.WithCancel(background)
		events := s.client.Watch(ctx, "/streams/", clientv3.WithPrefix(), clientv3.WithRev(written))
		if first := <-events; len(first.Events) == 0 {
			t.Fatalf("round %d: the watch from revision %d reports progress to %d before the event (%v)",
				round, written, first.Header.Revision, first.Err())
		}
		cancel()
	}
}

// Two caches of one resource share no stream, so the progress of one cannot overtake the events of the other: a custom
// resource has a cache for each version.
func TestCachesOfOneNameShareNoStream(t *testing.T) {
	streams := map[string]bool{}
	for range 2 {
		w := streamsFrom(SeparateStreams("widgets.example.com")(t.Context()))
		for range 2 {
			sent, _ := metadata.FromOutgoingContext(w.withStream(t.Context(), w.next()))
			streams[strings.Join(sent.Get("coppice-watch"), " ")] = true
		}
	}
	if len(streams) != 4 {
		t.Errorf("four watches have the streams %v", slices.Sorted(maps.Keys(streams)))
	}
}

// Progress requests go to the newest watch, even if an older one is reported late.
func TestStreamsKnowTheNewestWatch(t *testing.T) {
	w := &watchStreams{name: "pods"}
	older, newer := w.next(), w.next()
	olderWatch, endOlder := context.WithCancel(t.Context())
	newerWatch, endNewer := context.WithCancel(t.Context())
	for _, step := range []struct {
		what   string
		report func()
		want   int
	}{
		{"none was created", func() {}, 0},
		{"the newer was created", func() { w.created(newerWatch, newer) }, newer},
		{"the older was created", func() { w.created(olderWatch, older) }, newer},
		{"the older ended", endOlder, newer},
		{"the newer ended", endNewer, 0},
	} {
		step.report()
		if got := w.existing(); got != step.want {
			t.Errorf("%s: progress is requested of watch %d, want %d", step.what, got, step.want)
		}
	}
}

// Watches that end leave no stream behind, even if they are cancelled before their creation, during
// a progress request.
func TestStreamsEndWithTheirWatches(t *testing.T) {
	const rounds = 300
	s := open(t)
	const own = 2 // the streams of the compactor and of newest
	// As etcd3 does; this metadata is also part of the identity of a stream.
	background := clientv3.WithRequireLeader(SeparateStreams("pods")(t.Context()))
	for round := range rounds {
		ctx, cancel := context.WithCancel(background)
		var requests sync.WaitGroup
		requests.Go(func() {
			for ctx.Err() == nil {
				_ = s.client.RequestProgress(background)
			}
		})
		if round%2 == 0 {
			go cancel()
		}
		s.client.Watch(ctx, "/streams/", clientv3.WithPrefix())
		cancel()
		requests.Wait()
	}
	eventually.Agrees(t, func() string {
		if left := openStreams(); left > own {
			return fmt.Sprintf("%d streams are left, want the store's own %d", left, own)
		}
		return ""
	})
}

// openStreams counts the watch streams that the etcd clients of this process have open.
func openStreams() int {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	return bytes.Count(all.Bytes(), []byte("(*watchGRPCStream).run("))
}

// BenchmarkWatchProgress requests the progress of one of 60 watches, as many as a control plane
// has resources: all on one stream, and on one each.
func BenchmarkWatchProgress(b *testing.B) {
	for _, separate := range []bool{false, true} {
		b.Run(fmt.Sprintf("separate=%t", separate), func(b *testing.B) {
			s := open(b)
			contexts := make([]context.Context, 60)
			var answers clientv3.WatchChan
			var others sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			for i := range contexts {
				contexts[i] = ctx
				if separate {
					contexts[i] = SeparateStreams(fmt.Sprint("r", i))(ctx)
				}
				events := s.client.Watch(contexts[i], fmt.Sprintf("/progress/%d/", i), clientv3.WithPrefix())
				if i == 0 {
					answers = events
					continue
				}
				others.Go(func() {
					for range events {
					}
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				must(b, s.client.RequestProgress(contexts[0]))
				<-answers
			}
			cancel()
			others.Wait()
		})
	}
}
