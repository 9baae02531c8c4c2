package storage

import (
	"bytes"
	"context"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
)

// A watch that begins in the past is not told that it has come to the present before
// it has had what lies between.
func TestProgressDoesNotOvertakeEvents(t *testing.T) {
	const rounds = 40 // of a tenth of a second each: so often etcd looks after watches from the past
	s := open(t)
	background := context.WithValue(t.Context(), lineKey{}, &line{resource: corev1.Resource("pods")})
	put, err := s.client.Put(t.Context(), "/line/key", "")
	if err != nil {
		t.Fatal(err)
	}
	written := put.Header.Revision
	asking, stop := context.WithCancel(background)
	var asker sync.WaitGroup
	asker.Go(func() {
		for asking.Err() == nil {
			_ = s.client.RequestProgress(asking)
		}
	})
	t.Cleanup(func() {
		stop()
		asker.Wait()
	})
	for round := range rounds {
		ctx, cancel := context.WithCancel(background)
		events := s.client.Watch(ctx, "/line/", clientv3.WithPrefix(), clientv3.WithRev(written))
		if first := <-events; len(first.Events) == 0 {
			t.Fatalf("round %d: the watch from revision %d is told of progress to %d before the event (%v)",
				round, written, first.Header.Revision, first.Err())
		}
		cancel()
	}
}

// The watch that is asked is the newest there is, also when news of an older one are late.
func TestLineAsksTheNewestWatch(t *testing.T) {
	l := &line{resource: corev1.Resource("pods")}
	older, newer := l.open(), l.open()
	for _, step := range []struct {
		news string
		tell func()
		want int
	}{
		{"none was created", func() {}, 0},
		{"the newer was created", func() { l.created(newer) }, newer},
		{"the older was created", func() { l.created(older) }, newer},
		{"the older ended", func() { l.ended(older) }, newer},
		{"the newer ended", func() { l.ended(newer) }, 0},
	} {
		step.tell()
		if got := l.there(); got != step.want {
			t.Errorf("%s: watch %d is asked, want %d", step.news, got, step.want)
		}
	}
}

// Watches that end leave no stream behind, also when they are given up before they were
// created, and when their progress is asked for at that moment.
func TestStreamsEndWithTheirWatches(t *testing.T) {
	const rounds, patience = 300, 2 * time.Minute
	s := open(t)
	const own = 2 // the compactor's and that of the newest writes
	// As the library has it: what else is said is part of the names of streams.
	background := clientv3.WithRequireLeader(context.WithValue(t.Context(), lineKey{}, &line{resource: corev1.Resource("pods")}))
	for round := range rounds {
		ctx, cancel := context.WithCancel(background)
		var asker sync.WaitGroup
		asker.Go(func() {
			for ctx.Err() == nil {
				_ = s.client.RequestProgress(background)
			}
		})
		if round%2 == 0 {
			go cancel()
		}
		s.client.Watch(ctx, "/line/", clientv3.WithPrefix())
		cancel()
		asker.Wait()
	}
	deadline := time.After(patience)
	for streams() > own {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("%d streams are left, want the store's own %d", streams(), own)
		}
	}
}

// streams counts the streams of watches that the clients of this process have.
func streams() int {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	return bytes.Count(all.Bytes(), []byte("(*watchGRPCStream).run("))
}
