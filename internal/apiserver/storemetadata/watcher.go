package storemetadata

import (
	"errors"
	"math"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

const (
	// resultsBuffer is the number of events that wait for a client without a goroutine. Most kinds
	// are quiet: there are many watches, and no goroutines.
	resultsBuffer = 4
	// mostQueued bounds the events that wait for a client. If there are more, the watch ends, and
	// the client may resume it.
	mostQueued = 100_000
)

// event is an event at a revision.
type event struct {
	revision int64
	watch.Event
}

// isOld reports whether a client that has everything up to a revision has the event. A bookmark at
// that revision is not old: a resumed watch has not sent it yet.
func (e event) isOld(after int64) bool {
	return e.revision < after || e.revision == after && e.Type != watch.Bookmark
}

// watcher is a watch of one resource. It is a etcd.Subscriber, which the follower calls, and the
// watch.Interface of a client.
type watcher struct {
	results chan watch.Event
	stopped chan struct{} // closed by Stop
	onStop  func()        // set before the client has the watcher

	once sync.Once

	mu      sync.Mutex
	after   int64   // guarded by mu, like all fields below; the client has the events up to this revision
	queue   []event // waiting for the client
	passing bool    // a goroutine delivers the queue
	ended   bool    // no event is added to the queue any more
}

var (
	_ etcd.Subscriber = (*watcher)(nil)
	_ watch.Interface = (*watcher)(nil)
)

// newWatcher returns a watcher that queues its events until pass is called.
func newWatcher() *watcher {
	return &watcher{results: make(chan watch.Event, resultsBuffer), stopped: make(chan struct{}), onStop: func() {}, passing: true}
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.once.Do(func() {
		close(w.stopped)
		w.onStop()
		w.end()
	})
}

// Changed implements etcd.Subscriber.
func (w *watcher) Changed(c etcd.Change) {
	if e, ok := w.eventOf(c); ok {
		w.send(event{c.Revision, e})
	}
}

// replay delivers a change from before the subscription. Only the goroutine that delivers events
// calls it.
func (w *watcher) replay(c etcd.Change) {
	if e, ok := w.eventOf(c); ok {
		w.deliver(e)
	}
}

// eventOf returns the event of a change. If the change cannot be decoded or has no value, the watch
// ends.
func (w *watcher) eventOf(c etcd.Change) (watch.Event, bool) {
	kind := watch.Modified
	switch {
	case c.Deleted:
		kind = watch.Deleted
	case c.Created:
		kind = watch.Added
	}
	if c.Value == nil {
		w.Lost() // etcd has dropped the deleted object
		return watch.Event{}, false
	}
	object, err := decode(c.Value, c.Revision)
	if err != nil {
		w.fail(apierrors.NewInternalError(corrupt(c.Key, err)))
		return watch.Event{}, false
	}
	return watch.Event{Type: kind, Object: object}, true
}

// Lost implements etcd.Subscriber.
func (w *watcher) Lost() {
	w.fail(apierrors.NewResourceExpired("that revision has been compacted, or replaced by a backup"))
}

// bookmark sends a bookmark: the client has all events up to its revision.
func (w *watcher) bookmark(revision int64) {
	w.send(event{revision, watch.Event{Type: watch.Bookmark, Object: bookmarkAt(revision)}})
}

func bookmarkAt(revision int64) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   typeOfMetadata(),
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(revision, 10)},
	}
}

// send delivers an event, or queues it.
func (w *watcher) send(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
		return
	case !w.passing:
		if e.isOld(w.after) {
			return
		}
		select {
		case w.results <- e.Event:
			return
		default:
		}
		w.passing = true
		go w.pass()
	case len(w.queue) >= mostQueued:
		w.endLocked()
		return
	}
	w.queue = append(w.queue, e)
}

// fail ends the watch with an error.
func (w *watcher) fail(err error) {
	status := apierrors.NewInternalError(err).ErrStatus
	if known, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status = known.ErrStatus
	}
	w.send(event{math.MaxInt64, watch.Event{Type: watch.Error, Object: &status}})
	w.end()
}

// end ends the watch after the client has received all events that were sent.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked()
}

func (w *watcher) endLocked() {
	if !w.ended {
		w.ended = true
		if !w.passing {
			close(w.results)
		}
	}
}

// begin sets the revision after which events are delivered.
func (w *watcher) begin(after int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = after
}

// deliver waits until the client has room for an event. It returns false if the client has stopped
// the watch. Only the goroutine that delivers events calls it.
func (w *watcher) deliver(e watch.Event) bool {
	select {
	case w.results <- e:
		return true
	case <-w.stopped:
		return false
	}
}

// pass delivers the queue, until it is empty.
func (w *watcher) pass() {
	for {
		w.mu.Lock()
		queue, after := w.queue, w.after
		w.queue = nil
		if len(queue) == 0 {
			w.passing = false
			if w.ended {
				close(w.results)
			}
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		for _, e := range queue {
			if !e.isOld(after) && !w.deliver(e.Event) {
				break
			}
		}
	}
}
