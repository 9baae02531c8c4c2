package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/util/rand"
)

// SeparateStreams returns a function that marks the contexts of consecutive watches, and of their progress requests:
// each watch gets its own stream to etcd. The name is part of the streams' names, and so is a random number: several caches of
// one name may exist at a time, one for each version of a custom resource, and one for each state of its definition.
//
// Problem: clientv3 puts watches with the same metadata into one stream. The response to a progress
// request goes to all watches that the stream has when the response arrives, even to a watch that
// was created after etcd sent it. That watch then appears to have reached a revision whose events
// it has not received. If it ends before it receives them, for example because one of them cannot
// be decoded, its successor begins after them, and the cache never gets them. With a stream for
// each watch, and no progress request before the watch is created, that cannot happen. Also, a
// request for one cache causes no responses to other caches.
//
// Benefit: no event is lost; TestProgressDoesNotOvertakeEvents and TestCachesOfOneNameShareNoStream fail without it.
// BenchmarkWatchProgress prints the cost with and without it. TestStreamsEndWithTheirWatches fails
// if clientv3 no longer ends a stream with its last watch, on which closeStream relies.
func SeparateStreams(name string) func(context.Context) context.Context {
	streams := &watchStreams{name: name + "-" + rand.String(16)}
	return func(ctx context.Context) context.Context { return context.WithValue(ctx, streamsKey{}, streams) }
}

// watchStreams are the streams of consecutive watches.
type watchStreams struct {
	name string

	mu      sync.Mutex
	opened  int          // guarded by mu, like all fields below; the number of watches so far
	current int          // the number of the newest watch that was created; 0 for none
	err     func() error // not nil once the current watch is cancelled
}

// closeStreamTimeout bounds the end of a stream if etcd does not respond.
const closeStreamTimeout = time.Minute

type streamsKey struct{}

// streamsFrom returns nil for a watch that shares the stream of all others.
func streamsFrom(ctx context.Context) *watchStreams {
	w, _ := ctx.Value(streamsKey{}).(*watchStreams)
	return w
}

// withStream names a stream: clientv3 opens one for each distinct metadata.
func withStream(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "coppice-watch", name)
}

func (w *watchStreams) withStream(ctx context.Context, number int) context.Context {
	return withStream(ctx, fmt.Sprintf("%s#%d", w.name, number))
}

// next returns the number of a new watch.
func (w *watchStreams) next() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opened++
	return w.opened
}

// created may be called late, for a watch that already has a successor. ctx is the watch's.
func (w *watchStreams) created(ctx context.Context, number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number > w.current {
		w.current, w.err = number, ctx.Err
	}
}

// existing returns the number of the watch that exists, or 0 for none. It checks the watch's
// context, whose error is set before any goroutine that waits for its end continues. So it never
// returns a watch that clientv3 has ended.
func (w *watchStreams) existing() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == 0 || w.err() != nil {
		return 0
	}
	return w.current
}

// streamWatcher is the Watcher of an etcd client. It gives each watch of watchStreams its own
// stream, and passes on only the events that OnlyNamed requires.
type streamWatcher struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher.
func (s streamWatcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	events := s.open(ctx, key, options)
	if name := nameFrom(ctx); name != "" || isSelective(ctx) {
		return selected(ctx, name, events)
	}
	return events
}

// open opens a watch.
func (s streamWatcher) open(ctx context.Context, key string, options []clientv3.OpOption) clientv3.WatchChan {
	streams := streamsFrom(ctx)
	if streams == nil {
		return s.Watcher.Watch(ctx, key, options...)
	}
	number := streams.next()
	// It returns when the watch has been created, or has failed.
	events := s.Watcher.Watch(streams.withStream(ctx, number), key, options...)
	if ctx.Err() != nil {
		go s.closeStream(ctx, streams, number, key)
		return events
	}
	streams.created(ctx, number)
	return events
}

// closeStream ends a stream that has no watch, or never had one, by opening and ending a watch on
// it: clientv3 ends a stream with its last watch. ctx must be a context that was used for the
// stream, because its other metadata are part of the stream's identity.
func (s streamWatcher) closeStream(ctx context.Context, streams *watchStreams, number int, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeStreamTimeout)
	defer cancel()
	s.Watcher.Watch(streams.withStream(ctx, number), key)
}

// RequestProgress implements clientv3.Watcher. Without a watch there is no response; the watch
// cache will retry.
func (s streamWatcher) RequestProgress(ctx context.Context) error {
	streams := streamsFrom(ctx)
	if streams == nil {
		return s.Watcher.RequestProgress(ctx)
	}
	number := streams.existing()
	if number == 0 {
		return nil
	}
	err := s.Watcher.RequestProgress(streams.withStream(ctx, number))
	if streams.existing() != number {
		go s.closeStream(ctx, streams, number, "/") // the request may have opened the stream again
	}
	return err
}
