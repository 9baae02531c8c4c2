package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// watchStreams gives the watch that fills a resource's watch cache a stream of its own to etcd, and
// a new one to each watch that succeeds it.
//
// What it works around: clientv3 puts watches with the same metadata into one stream. etcd answers
// a request for progress to all watches that the stream has when the response arrives, also to one
// that was created after the response was sent. That watch then appears to have reached a revision
// whose events it has not received; should it end before it receives them, as it does when one of
// them cannot be decoded, its successor begins after them, and the cache never learns of them. With
// a stream for each watch, and no request for progress before the watch is created, that cannot
// happen. Nor does a request for one resource cause a response to the caches of all others.
//
// What it buys: no event is lost; TestProgressDoesNotOvertakeEvents fails without it.
// BenchmarkWatchProgress prints what it saves. TestStreamsEndWithTheirWatches fails should clientv3
// no longer end a stream with its last watch, on which closeStream relies.
type watchStreams struct {
	resource schema.GroupResource

	mu      sync.Mutex
	opened  int          // guarded by mu, like the others; the number of watches so far
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
	return withStream(ctx, fmt.Sprintf("%s#%d", w.resource, number))
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

// existing returns the number of the watch that exists, or 0 for none. It asks the watch's context,
// whose error is set before anything that waits for its end can notice: a watch that clientv3 has
// ended never exists here.
func (w *watchStreams) existing() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == 0 || w.err() != nil {
		return 0
	}
	return w.current
}

// streamWatcher is the Watcher of an etcd client. It gives the watches of watchStreams streams of
// their own.
type streamWatcher struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher.
func (s streamWatcher) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
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

// closeStream ends a stream that has no watch, and may never have had one: clientv3 ends a stream
// with the last of its watches. ctx must be one that was used for the stream: any other metadata it
// has is part of the stream's identity.
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

// separateStreams is a storage whose watches have streams of their own.
type separateStreams struct {
	apistorage.Interface
	streams *watchStreams
}

// Watch implements storage.Interface.
func (s separateStreams) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(context.WithValue(ctx, streamsKey{}, s.streams), key, opts)
}

// RequestWatchProgress implements storage.Interface.
func (s separateStreams) RequestWatchProgress(ctx context.Context) error {
	return s.Interface.RequestWatchProgress(context.WithValue(ctx, streamsKey{}, s.streams))
}
