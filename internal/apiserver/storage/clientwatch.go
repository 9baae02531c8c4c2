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
	// statePatience is how long a watch waits once all watches together hold mostOfAll, if the watch cannot be reopened
	// because its client does not have the initial state yet.
	statePatience = time.Second
	// mostEvents and mostBytes bound the events that a watch holds for its client, besides one event of any size.
	mostEvents = 100
	mostBytes  = 1 << 20
	// mostOfAll is the number of bytes of all watches together above which each watch holds only one event.
	mostOfAll = 64 << 20
	// batch is the most events that a client may take at once. The handler of watches in k8s.io/apiserver flushes its
	// response when no other event is in the channel.
	batch = 10
	// drainInterval is the interval at which a watch checks whether its client has taken events from the channel, while
	// no other event may be sent.
	drainInterval = 10 * time.Millisecond
	// idleResumptions is how many times in a row a watch without events is reopened.
	idleResumptions = 16
)

// openWatch opens a watch, which ends with ctx.
type openWatch func(ctx context.Context, opts apistorage.ListOptions) (watch.Interface, error)

// clientWatch is a watch of a client that lasts as long as the client takes its events.
//
// Problem: the watch cache of k8s.io/apiserver ends a watch as soon as the watch is more than its two channels behind,
// once a time budget for all watches is spent. The channels have room for 10 events each if the watch began while the
// cache had seen few changes, which is usual for a cache that begins with its first watch. Changes come faster than the
// scheduler wakes the goroutines of a hundred watches. A watch of etcd is never ended: its events are kept without a
// limit.
//
// Solution: clientWatch holds events for its client, up to mostEvents and mostBytes. When the client is further behind,
// it stops the watch of the cache or of etcd, which drops the events that are held there. When the client has taken the
// events, it reopens the watch after the last one. The cache serves the events since then from its window, without a
// copy for each watch. The watch of a client that takes no event for clientPatience, or that has fallen behind the
// window, ends.
//
// Benefit: with 32 writers, 100 watches were ended 809 times in 2000 changes (make bench, section requests).
// TestClientBehindIsNotEnded fails without it.
type clientWatch struct {
	ctx     context.Context //nolint:containedctx // the watch's own; Stop ends it
	cancel  context.CancelFunc
	resume  func(after uint64) (watch.Interface, error) // nil if the watch is not reopened
	results chan watch.Event                            // has the first events of the queue
	total   *atomic.Int64                               // the bytes that all watches hold, as of the last check of each channel

	// The goroutine of pass owns the fields below.
	bookmarks bool   // the client wants them
	after     uint64 // the client or the queue has all events up to this revision; 0 while it is unknown
	idle      int    // resumptions since the last event
	queue     []heldEvent
	bytes     int         // of the queue
	sent      int         // events of the queue in the channel, as of the last check
	sentBytes int         // of these
	patience  *time.Timer // fires when isPatient must be called, if timed
	timed     bool        // at least while the queue is not empty
	since     time.Time   // the client has taken nothing since then, if the queue is not empty
	counted   int         // this watch's part of total
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
		// The watch can resume after a bookmark if other events are rare.
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

// stop stops a watch of the cache or of etcd, and drops the events that are in its channel.
//
// The watch cache refers to a stopped watch until the time of its next bookmark, which is up to a minute later
// (bookmarkWatchers in k8s.io/apiserver's storage/cacher). A watch that was stopped 45 times, while its client took
// events of a megabyte, kept 390 MB.
func stop(source watch.Interface) {
	source.Stop()
	go func() {
		for range source.ResultChan() { // it is closed once the watch has ended
		}
	}()
}

// ResultChan implements watch.Interface.
func (w *clientWatch) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *clientWatch) Stop() { w.cancel() }

// pass passes events on until the watch ends.
func (w *clientWatch) pass(source watch.Interface) {
	defer func() {
		if source != nil {
			stop(source)
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

// step waits for one event of the source, or for the client. It returns the source, or nil if the source has ended or
// was stopped. It returns false if the client's watch ends.
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
	if from == nil && to == nil { // a client that receives from a channel with free space wakes no goroutine
		drained = time.After(drainInterval)
	}
	select {
	case event, ok := <-from:
		w.settle(source)
		if !ok {
			stop(source)
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

// take holds an event, and sends it if possible. It returns the source, or nil if it has stopped the source.
func (w *clientWatch) take(event watch.Event, source watch.Interface) watch.Interface {
	w.note(event)
	if event.Type == watch.Bookmark && !w.bookmarks {
		return source
	}
	if event.Type == watch.Error {
		stop(source)
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
	stop(source)
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
		w.since = time.Now()
	}
	if !w.timed {
		w.patience.Reset(statePatience)
		w.timed = true
	}
	held := heldEvent{event, w.after, SizeOf(event.Object)}
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

// mayBeSent reports whether there is a next event that may be sent besides the events in the channel.
func (w *clientWatch) mayBeSent() bool {
	if w.sent == len(w.queue) {
		return false
	}
	return w.sent == 0 || w.sentBytes+w.queue[w.sent].bytes <= mostBytes && w.total.Load() <= mostOfAll
}

// noteSent records that the next event of the queue is in the channel.
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
	w.since = time.Now()
	w.count(source)
}

// drain drops the events that the client has not taken. If the client takes an event meanwhile, it may have missed the
// events before it: it gets an error, and lists again.
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

// isPatient returns false if the client has taken nothing for too long. Otherwise it sets the time of its next call, if
// the watch holds events.
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

// count counts the bytes that the watch holds. When the watch takes no more events from a source that cannot be
// stopped, the channel of the source counts as full of events of average size.
func (w *clientWatch) count(source watch.Interface) {
	bytes := w.bytes
	if source != nil && len(w.queue) > 0 && w.isFull() && !w.isResumable() {
		bytes += w.bytes / len(w.queue) * cap(source.ResultChan())
	}
	w.total.Add(int64(bytes - w.counted))
	w.counted = bytes
}

// note records the revision of an event. The first events of a watch that begins with a state are additions in no
// order, so the watch cannot resume between them. All other events come after them.
func (w *clientWatch) note(event watch.Event) {
	w.idle = 0
	if event.Type == watch.Error || event.Type == watch.Added && w.after == 0 {
		return
	}
	if revision, err := (apistorage.APIObjectVersioner{}).ObjectResourceVersion(event.Object); err == nil {
		w.after = revision
	}
}

// reopen reopens the watch. It returns nil if the watch may hold no more events, or will end when the client has all
// events.
func (w *clientWatch) reopen() watch.Interface {
	if w.isFull() || !w.isResumable() || w.idle == idleResumptions || w.ctx.Err() != nil {
		return nil
	}
	w.idle++
	events, err := w.resume(w.after)
	if err != nil { // the cache has stopped, or is being refilled
		w.resume = nil
		return nil
	}
	return events
}
