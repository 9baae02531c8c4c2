package storage

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

const (
	// clientPatience is how long a watch waits for its client to take an event.
	clientPatience = 10 * time.Second
	// statePatience is how long a watch waits that cannot be opened anew, because its client does not have the state
	// yet with which it begins, once all watches together hold mostOfAll.
	statePatience = time.Second
	// mostEvents and mostBytes are the most that a watch holds for its client, besides one event of any size.
	mostEvents = 100
	mostBytes  = 1 << 20
	// mostOfAll is the number of bytes that all watches hold together from which on each holds one event.
	mostOfAll = 64 << 20
	// batch is the most events that a client may take at once. The handler of watches in k8s.io/apiserver flushes its
	// response when no other event is in the channel.
	batch = 10
	// drainInterval is how often a watch looks whether its client has taken what is in the channel, when nothing else
	// may go in.
	drainInterval = 10 * time.Millisecond
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
// hundred watches. A watch of etcd is never ended: its events are kept without a limit.
//
// What it does: it holds events for its client, up to mostEvents and mostBytes. When a client is further
// behind, it stops the watch of the cache or of etcd, and with it all that is held there. When the client
// has taken what it holds, it opens the watch anew after the last of these. The cache serves the events
// since then from its window, without a copy for each watch. A client that takes no event for clientPatience,
// or that has fallen behind the window, is ended.
//
// What it buys: with 32 writers, 100 watches were ended 809 times in 2000 changes (make bench, section
// requests). TestClientBehindIsNotEnded fails without it.
type clientWatch struct {
	ctx     context.Context //nolint:containedctx // the watch's own; Stop ends it
	cancel  context.CancelFunc
	resume  func(after uint64) (watch.Interface, error) // nil if the watch is not opened anew
	results chan watch.Event                            // has the first of the queue
	total   *atomic.Int64                               // the bytes that all watches hold, or have held until they last looked at their channels

	// Of the goroutine that passes events on.
	bookmarks bool   // the client wants them
	after     uint64 // the client has all events up to this revision, or the queue does; 0 while it is not known
	idle      int    // resumptions since the last event
	queue     []heldEvent
	bytes     int         // of the queue
	sent      int         // how many of the queue are in the channel, as far as is known
	sentBytes int         // of these
	patience  *time.Timer // fires when the client's patience is to be examined, if timed
	timed     bool        // at least while the queue is not empty
	since     time.Time   // the client has taken nothing since then, if the queue is not empty
	counted   int         // the part of total
}

// heldEvent is an event that waits for the client.
type heldEvent struct {
	watch.Event

	after uint64 // a new watch after this revision gets all later events; 0: no new watch does
	bytes int
}

// watchFor opens a watch for a client. total counts the bytes that all watches hold.
func watchFor(ctx context.Context, opts apistorage.ListOptions, total *atomic.Int64, open openWatch) (watch.Interface, error) {
	w := newClientWatch(ctx, opts.Predicate.AllowWatchBookmarks, total)
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

func newClientWatch(ctx context.Context, bookmarks bool, total *atomic.Int64) *clientWatch {
	ctx, cancel := context.WithCancel(ctx)
	return &clientWatch{
		ctx: ctx, cancel: cancel, bookmarks: bookmarks, total: total, results: make(chan watch.Event, batch),
		patience: time.NewTimer(statePatience), timed: true,
	}
}

// ResultChan implements watch.Interface.
func (w *clientWatch) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *clientWatch) Stop() { w.cancel() }

// pass passes events on until the watch ends.
func (w *clientWatch) pass(source watch.Interface) {
	defer func() {
		if source != nil {
			source.Stop()
		}
		w.drain()
		w.cancel()
		close(w.results)
	}()
	defer w.patience.Stop()
	for {
		if source == nil && w.sent == len(w.queue) {
			if source = w.reopen(); source == nil && len(w.queue) == 0 {
				return
			}
		}
		var ok bool
		if source, ok = w.step(source); !ok {
			return
		}
	}
}

// step waits for one event of the source, or for the client. It returns the source, nil if that has ended or was
// stopped, and false if the client's watch ends.
func (w *clientWatch) step(source watch.Interface) (watch.Interface, bool) {
	var from <-chan watch.Event
	if source != nil && !w.isFull() {
		from = source.ResultChan()
	}
	var to chan<- watch.Event
	var next watch.Event
	if w.mayBeSent() {
		to, next = w.results, w.queue[w.sent].Event
	}
	var drained <-chan time.Time
	if from == nil && to == nil { // a client that takes events from a channel that is not full wakes nobody
		drained = time.After(drainInterval) //nolint:forbidigo // tests have a clock of their own (synctest)
	}
	select {
	case event, ok := <-from:
		w.settle(source)
		if !ok {
			source.Stop()
			return nil, true
		}
		return w.take(event, source), true
	case to <- next:
		w.noteSent()
		w.settle(source)
		return source, true
	case <-drained:
		w.settle(source)
		return source, true
	case <-w.patience.C:
		w.settle(source)
		return source, w.isPatient()
	case <-w.ctx.Done():
		return source, false
	}
}

// take holds an event, and passes it on if it may. It returns the source, or nil if it has stopped that.
func (w *clientWatch) take(event watch.Event, source watch.Interface) watch.Interface {
	w.note(event)
	if event.Type == watch.Bookmark && !w.bookmarks {
		return source
	}
	if event.Type == watch.Error {
		source.Stop()
		w.resume, source = nil, nil
	}
	w.hold(event)
	w.count(source)
	if w.mayBeSent() {
		select {
		case w.results <- w.queue[w.sent].Event:
			w.noteSent()
		default:
		}
	}
	if source == nil || !w.isFull() || !w.isResumable() {
		return source
	}
	source.Stop()
	if keep := max(w.sent, 1); w.total.Load() > mostOfAll && w.queue[keep-1].after != 0 {
		w.after = w.queue[keep-1].after
		w.forget(keep, len(w.queue))
	}
	w.count(nil)
	return nil
}

// hold adds an event to the queue.
func (w *clientWatch) hold(event watch.Event) {
	if len(w.queue) == 0 {
		w.since = time.Now() //nolint:forbidigo // tests have a clock of their own (synctest)
	}
	if !w.timed {
		w.patience.Reset(statePatience)
		w.timed = true
	}
	held := heldEvent{event, w.after, sizeOf(event.Object)}
	w.queue = append(w.queue, held)
	w.bytes += held.bytes
}

// forget removes events from the queue.
func (w *clientWatch) forget(from, to int) {
	for _, held := range w.queue[from:to] {
		w.bytes -= held.bytes
	}
	if w.queue = slices.Delete(w.queue, from, to); len(w.queue) == 0 && cap(w.queue) > 2*batch {
		w.queue = nil
	}
}

// mayBeSent reports whether there is a next event for the channel that may be there beside those which the client
// has not taken yet.
func (w *clientWatch) mayBeSent() bool {
	if w.sent == len(w.queue) {
		return false
	}
	return w.sent == 0 || w.sentBytes+w.queue[w.sent].bytes <= mostBytes && w.total.Load() <= mostOfAll
}

// noteSent follows an event that has gone into the channel.
func (w *clientWatch) noteSent() {
	w.sentBytes += w.queue[w.sent].bytes
	w.sent++
}

// settle removes the events from the queue that the client has taken.
func (w *clientWatch) settle(source watch.Interface) {
	taken := w.sent - len(w.results)
	if taken == 0 {
		return
	}
	for _, held := range w.queue[:taken] {
		w.sentBytes -= held.bytes
	}
	w.sent -= taken
	w.forget(0, taken)
	w.since = time.Now() //nolint:forbidigo // tests have a clock of their own (synctest)
	w.count(source)
}

// drain drops what the client has not taken. A client that takes an event meanwhile may have missed the ones before it,
// and lists again.
func (w *clientWatch) drain() {
	dropped := 0
	for len(w.results) > 0 {
		select {
		case <-w.results:
			dropped++
		default:
		}
	}
	if dropped < w.sent && w.ctx.Err() == nil {
		err := apierrors.NewResourceExpired("the client of the watch was too slow")
		w.results <- watch.Event{Type: watch.Error, Object: &err.ErrStatus}
	}
	w.queue, w.bytes, w.sent, w.sentBytes = nil, 0, 0, 0
	w.count(nil)
}

// isPatient returns false if the client has taken nothing for too long. Otherwise it is to be called again later, if
// anything is held.
func (w *clientWatch) isPatient() bool {
	if w.timed = len(w.queue) > 0; !w.timed {
		return true
	}
	waited := time.Since(w.since)
	if waited >= clientPatience || waited >= statePatience && !w.isResumable() && w.total.Load() > mostOfAll {
		return false
	}
	if waited < statePatience {
		w.patience.Reset(statePatience - waited)
	} else {
		w.patience.Reset(min(statePatience, clientPatience-waited))
	}
	return true
}

// isFull reports whether the watch holds no more events.
func (w *clientWatch) isFull() bool {
	return len(w.queue) >= mostEvents || w.bytes >= mostBytes || len(w.queue) > 0 && w.total.Load() > mostOfAll
}

// isResumable reports whether a new watch can follow the events that this one holds.
func (w *clientWatch) isResumable() bool { return w.resume != nil && w.after != 0 }

// count counts bytes that the watch holds. A source that cannot be stopped holds as many events as its channel has
// room for, of the same size, when the watch takes no more from it.
func (w *clientWatch) count(source watch.Interface) {
	bytes := w.bytes
	if source != nil && len(w.queue) > 0 && w.isFull() && !w.isResumable() {
		bytes += w.bytes / len(w.queue) * cap(source.ResultChan())
	}
	w.total.Add(int64(bytes - w.counted))
	w.counted = bytes
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

// reopen returns nil if the watch ends when the client has all events, or as long as no more may be held.
func (w *clientWatch) reopen() watch.Interface {
	if w.isFull() || !w.isResumable() || w.idle == idleResumptions || w.ctx.Err() != nil {
		return nil
	}
	w.idle++
	events, err := w.resume(w.after)
	if err != nil { // the cache has stopped, or is being filled anew
		w.resume = nil
		return nil
	}
	return events
}
