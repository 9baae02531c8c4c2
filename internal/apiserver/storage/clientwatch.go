package storage

import (
	"context"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

const (
	// clientPatience is how long a watch waits for its client to take an event.
	clientPatience = 10 * time.Second
	// ahead is the number of events that a watch holds for its client.
	ahead = 10
	// idleResumptions is how often in a row a watch that gets no event is opened anew.
	idleResumptions = 16
)

// openWatch opens a watch, which ends with ctx.
type openWatch func(ctx context.Context, opts apistorage.ListOptions) (watch.Interface, error)

// clientWatch is a watch of a client that lasts as long as the client takes its events.
//
// What it works around: the watch cache of k8s.io/apiserver ends a watch as soon as the watch is more
// than its two channels behind, once a time budget for all watches is spent. The channels have room for
// 10 events each if the watch began while the cache had seen few changes, which is the rule for a cache
// that begins with its first watch. Changes come faster than the scheduler wakes the goroutines of a
// hundred watches.
//
// What it does: it opens the watch anew after the last event that it has passed on. The cache serves
// the events since then from its window, without a copy for each watch, and gives the new watch larger
// channels. A client that takes no event for clientPatience, or that has fallen behind the window, is
// ended: what is held for it is at most the two channels, and ahead events.
//
// What it buys: with 32 writers, 100 watches were ended 809 times in 2000 changes (make bench, section
// requests). TestClientBehindIsNotEnded fails without it.
type clientWatch struct {
	ctx     context.Context //nolint:containedctx // the watch's own; Stop ends it
	cancel  context.CancelFunc
	resume  func(after uint64) (watch.Interface, error) // nil if the watch is not opened anew
	results chan watch.Event

	bookmarks bool   // the client wants them
	after     uint64 // the revision up to which the client has all events; 0 while it is not known
	idle      int    // resumptions since the last event
}

// watchFor opens a watch of a cache for a client.
func watchFor(ctx context.Context, opts apistorage.ListOptions, open openWatch) (watch.Interface, error) {
	w := newClientWatch(ctx, opts.Predicate.AllowWatchBookmarks)
	if initial := opts.SendInitialEvents; initial == nil || !*initial {
		// The revision of a bookmark is one to resume after, if other events are rare.
		opts.Predicate.AllowWatchBookmarks = true
		w.after, _ = strconv.ParseUint(opts.ResourceVersion, 10, 64) // the cache reports an error
	}
	events, err := open(w.ctx, opts) //nolint:contextcheck // it is derived from ctx
	if err != nil {
		w.cancel()
		return nil, err
	}
	w.resume = func(after uint64) (watch.Interface, error) {
		opts.ResourceVersion, opts.ResourceVersionMatch, opts.SendInitialEvents = strconv.FormatUint(after, 10), "", nil
		opts.Predicate.AllowWatchBookmarks = true
		return open(w.ctx, opts)
	}
	go w.pass(events)
	return w, nil
}

// endIfSlow returns a watch of etcd that ends when its client is slow: what etcd sends meanwhile is
// kept, without a limit.
func endIfSlow(ctx context.Context, events watch.Interface) watch.Interface {
	w := newClientWatch(ctx, true)
	go w.pass(events)
	return w
}

func newClientWatch(ctx context.Context, bookmarks bool) *clientWatch {
	ctx, cancel := context.WithCancel(ctx)
	return &clientWatch{ctx: ctx, cancel: cancel, bookmarks: bookmarks, results: make(chan watch.Event, ahead)}
}

// ResultChan implements watch.Interface.
func (w *clientWatch) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *clientWatch) Stop() { w.cancel() }

// pass passes events on until the watch ends.
func (w *clientWatch) pass(events watch.Interface) {
	defer close(w.results)
	defer w.cancel()
	for events != nil {
		ended := w.drain(events)
		events.Stop()
		if !ended {
			return
		}
		events = w.reopen()
	}
}

// drain passes on the events of a watch until the cache ends it. It returns false if the client's watch
// ends, too: after an error, or by the client.
func (w *clientWatch) drain(events watch.Interface) (ended bool) {
	for {
		select {
		case event, ok := <-events.ResultChan():
			if !ok {
				return true
			}
			w.note(event)
			if event.Type == watch.Bookmark && !w.bookmarks {
				continue
			}
			if !w.send(event) || event.Type == watch.Error {
				return false
			}
		case <-w.ctx.Done():
			return false
		}
	}
}

// note notes the revision of an event. The first events of a watch that begins with a state are
// additions in no order, and no resumption would complete them. Any other event comes after them.
func (w *clientWatch) note(event watch.Event) {
	w.idle = 0
	if event.Type == watch.Error || event.Type == watch.Added && w.after == 0 {
		return
	}
	if revision, err := (apistorage.APIObjectVersioner{}).ObjectResourceVersion(event.Object); err == nil {
		w.after = revision
	}
}

// send returns false if the client does not take the event in time.
func (w *clientWatch) send(event watch.Event) bool {
	select {
	case w.results <- event:
		return true
	default:
	}
	patience := time.NewTimer(clientPatience)
	defer patience.Stop()
	select {
	case w.results <- event:
		return true
	case <-patience.C:
		return false
	case <-w.ctx.Done():
		return false
	}
}

// reopen returns nil if the watch ends.
func (w *clientWatch) reopen() watch.Interface {
	if w.resume == nil || w.after == 0 || w.idle == idleResumptions || w.ctx.Err() != nil {
		return nil
	}
	w.idle++
	events, err := w.resume(w.after)
	if err != nil { // the cache has stopped, or is being filled anew
		return nil
	}
	return events
}
