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

// line is what a resource's watch cache hears of etcd by: the stream of its watch, one
// after the other.
//
// Watches that share a stream are told of each other's progress, for the answer to a
// question for it goes to all watches of the stream that there are when it arrives, and
// an answer may be overtaken by the news that a watch was created which was not there
// when the answer was given. That watch is then said to have come to a revision whose
// events it has not had; and should it end before it has them, as it does when one of
// them cannot be decoded, its successor begins behind them, and the cache never learns
// of them. So each watch has a stream of its own, and is asked for its progress only
// once it was created. Nor does a question about one resource bother the caches of all
// others.
type line struct {
	resource schema.GroupResource

	mu      sync.Mutex
	opened  int // guarded by mu, and so is current; how many watches there have been
	current int // the number of the watch that is there; 0 for none
}

// hangUpTimeout is how long the end of a stream may take where etcd does not answer.
const hangUpTimeout = time.Minute

type lineKey struct{}

// lineOf is nil when nobody said whose line it is.
func lineOf(ctx context.Context) *line {
	l, _ := ctx.Value(lineKey{}).(*line)
	return l
}

// stream names a stream: watches of other names have other streams.
func stream(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "coppice-watch", name)
}

func (l *line) stream(ctx context.Context, number int) context.Context {
	return stream(ctx, fmt.Sprintf("%s#%d", l.resource, number))
}

func (l *line) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened++
	return l.opened
}

// created may come late, for a watch that has been given up for the next.
func (l *line) created(number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = max(l.current, number)
}

func (l *line) ended(number int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == number {
		l.current = 0
	}
}

func (l *line) there() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

// apart is the Watcher of a client that gives each watch of a line a stream.
type apart struct{ clientv3.Watcher }

// Watch implements clientv3.Watcher.
func (a apart) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	l := lineOf(ctx)
	if l == nil {
		return a.Watcher.Watch(ctx, key, options...)
	}
	number := l.open()
	events := a.Watcher.Watch(l.stream(ctx, number), key, options...) // returns when it was created, or could not be
	if ctx.Err() != nil {
		go a.hangUp(ctx, l, number, key)
		return events
	}
	l.created(number)
	context.AfterFunc(ctx, func() { l.ended(number) })
	return events
}

// hangUp ends a stream on which there is no watch, and may never have been one: the
// library ends a stream with the last of its watches. ctx is one that was used for the
// stream, for what else is said in it is part of the stream's name.
func (a apart) hangUp(ctx context.Context, l *line, number int, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUpTimeout)
	defer cancel()
	a.Watcher.Watch(l.stream(ctx, number), key)
}

// RequestProgress implements clientv3.Watcher. There is no answer when there is no
// watch: who asked will ask again.
func (a apart) RequestProgress(ctx context.Context) error {
	l := lineOf(ctx)
	if l == nil {
		return a.Watcher.RequestProgress(ctx)
	}
	number := l.there()
	if number == 0 {
		return nil
	}
	err := a.Watcher.RequestProgress(l.stream(ctx, number))
	if l.there() != number {
		go a.hangUp(ctx, l, number, "/") // the question may have made the stream anew
	}
	return err
}

// onLine is a storage whose watches are those of a line.
type onLine struct {
	apistorage.Interface
	line *line
}

// Watch implements storage.Interface.
func (s onLine) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	return s.Interface.Watch(context.WithValue(ctx, lineKey{}, s.line), key, opts)
}

// RequestWatchProgress implements storage.Interface.
func (s onLine) RequestWatchProgress(ctx context.Context) error {
	return s.Interface.RequestWatchProgress(context.WithValue(ctx, lineKey{}, s.line))
}
