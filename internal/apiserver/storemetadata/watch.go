package storemetadata

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// bookmarkInterval is the time between two bookmarks of a watch. A client resumes a watch at its
// last bookmark, whose revision etcd must still have: etcd keeps at least five minutes.
const bookmarkInterval = time.Minute

// isFollowable reports whether a watch begins with all objects, or at a revision. Other watches go
// to the API.
func isFollowable(options metav1.ListOptions) bool {
	if beginsWithAll(options) {
		return options.AllowWatchBookmarks
	}
	revision, err := strconv.ParseInt(options.ResourceVersion, 10, 64)
	return err == nil && revision > 0
}

// beginsWithAll reports whether the watch begins with all existing objects.
func beginsWithAll(options metav1.ListOptions) bool {
	return options.SendInitialEvents != nil && *options.SendInitialEvents
}

// watch opens a watch. initial gets the encoded metadata of existing objects; nil: they are events.
func (t *target) watch(
	ctx context.Context, prefix string, options metav1.ListOptions, initial func(metadata []byte, resourceVersion string) error,
) (watch.Interface, error) {
	s, resource := t.source, t.resource.GroupResource()
	w := newWatcher()
	ctx, cancel := context.WithCancel(ctx)
	position, err := s.Follower.Subscribe(ctx, prefix, w)
	if err != nil {
		cancel()
		return nil, err
	}
	s.addWatch(resource, w)
	bookmarks := newBookmarks(s.Follower, w, options)
	w.onStop = func() {
		cancel()
		bookmarks.stop()
		position.Cancel()
		s.removeWatch(resource, w)
	}
	context.AfterFunc(ctx, w.Stop)
	// The definition may have been removed before the watch was added: then endWatches never ends
	// the watch.
	if _, ok, err := t.prefix(ctx); err != nil || !ok {
		w.end()
	}
	go func() {
		if beginsWithAll(options) {
			t.beginWithAll(ctx, prefix, w, initialOf(ctx, w, initial))
		} else {
			t.resume(ctx, prefix, w, options.ResourceVersion, position.Revision)
		}
		w.pass()
	}()
	return w, nil
}

// initialOf returns what delivers an existing object, until the client has stopped the watch, which ends ctx.
func initialOf(ctx context.Context, w *watcher, encoded func(metadata []byte, resourceVersion string) error) func(etcd.Stored) (more bool, err error) {
	if encoded == nil {
		return func(stored etcd.Stored) (bool, error) {
			object, err := decode(stored.Value, stored.Revision)
			return err == nil && w.deliver(watch.Event{Type: watch.Added, Object: object}), err
		}
	}
	return func(stored etcd.Stored) (bool, error) {
		metadata, err := encode(stored.Value)
		if err != nil || ctx.Err() != nil {
			return false, err
		}
		return true, encoded(metadata, strconv.FormatInt(stored.Revision, 10))
	}
}

// beginWithAll delivers the stored objects, and a bookmark that marks their end.
func (t *target) beginWithAll(ctx context.Context, prefix string, w *watcher, initial func(etcd.Stored) (more bool, err error)) {
	last, _, err := t.read(ctx, prefix, continuation{}, 0, initial)
	if err != nil {
		w.fail(err)
		return
	}
	w.begin(last.Revision)
	all := bookmarkAt(last.Revision)
	all.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	w.deliver(watch.Event{Type: watch.Bookmark, Object: all})
}

// resume delivers the changes since a revision, up to the start of the subscription.
func (t *target) resume(ctx context.Context, prefix string, w *watcher, from string, position int64) {
	after, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		w.fail(err)
		return
	}
	if after >= position {
		w.begin(after)
		return
	}
	w.begin(position)
	err = t.source.Follower.Replay(ctx, prefix, after, position, func(c etcd.Change) { w.replay(c) })
	switch {
	case errors.Is(err, etcd.ErrCompacted):
		w.Lost()
	case err != nil:
		w.fail(err)
	}
}

// bookmarks sends the bookmarks of a watch, and ends the watch when its time is over. Just before
// the end it sends a bookmark of the newest revision, at which the client may resume.
type bookmarks struct {
	follower *etcd.Follower
	watcher  *watcher
	limited  bool // the watch has a timeout, and left is used
	allowed  bool

	mu      sync.Mutex
	timer   *time.Timer   // guarded by mu, like all fields below
	left    time.Duration // the remaining time when timer fires
	stopped bool
}

func newBookmarks(follower *etcd.Follower, w *watcher, options metav1.ListOptions) *bookmarks {
	b := &bookmarks{follower: follower, watcher: w, limited: options.TimeoutSeconds != nil, allowed: options.AllowWatchBookmarks}
	if b.limited {
		b.left = pods.Seconds(*options.TimeoutSeconds)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(b.waitLocked(), b.due)
	return b
}

// waitLocked returns the time until the next bookmark, and subtracts it from the time that is left.
func (b *bookmarks) waitLocked() time.Duration {
	if !b.limited {
		return bookmarkInterval
	}
	next := min(bookmarkInterval, b.left)
	b.left -= next
	return next
}

func (b *bookmarks) due() {
	b.mu.Lock()
	over := b.limited && b.left <= 0
	b.mu.Unlock()
	b.follower.At(func(reached int64) {
		if b.allowed {
			b.watcher.bookmark(reached)
		}
		if over {
			b.watcher.end()
		}
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if !over && !b.stopped {
		b.timer.Reset(b.waitLocked())
	}
}

func (b *bookmarks) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.timer.Stop()
}
