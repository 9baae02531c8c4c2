package storage

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

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
	results chan watch.Event
	total   *atomic.Int64 // the bytes that all watches hold

	// Of the goroutine that passes events on.
	bookmarks bool   // the client wants them
	after     uint64 // the client has all events up to this revision, or the queue does; 0 while it is not known
	idle      int    // resumptions since the last event
	queue     []heldEvent
	bytes     int         // of the queue
	patience  *time.Timer // fires when it is to be examined, if the queue is not empty
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
	return &clientWatch{ctx: ctx, cancel: cancel, bookmarks: bookmarks, total: total, results: make(chan watch.Event)}
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
		w.queue, w.bytes = nil, 0
		w.count(nil)
		w.cancel()
		close(w.results)
	}()
	w.patience = time.NewTimer(statePatience)
	defer w.patience.Stop()
	for {
		if source == nil && len(w.queue) == 0 {
			if source = w.reopen(); source == nil {
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
	var late <-chan time.Time
	if len(w.queue) > 0 {
		to, next, late = w.results, w.queue[0].Event, w.patience.C
	}
	select {
	case event, ok := <-from:
		if !ok {
			source.Stop()
			return nil, true
		}
		return w.take(event, source), true
	case to <- next:
		w.taken(source)
		return source, true
	case <-late:
		return source, w.isPatient()
	case <-w.ctx.Done():
		return source, false
	}
}

// take passes an event on, or holds it. It returns the source, or nil if it has stopped that.
func (w *clientWatch) take(event watch.Event, source watch.Interface) watch.Interface {
	w.note(event)
	if event.Type == watch.Bookmark && !w.bookmarks {
		return source
	}
	if event.Type == watch.Error {
		source.Stop()
		w.resume, source = nil, nil
	}
	if len(w.queue) == 0 {
		select {
		case w.results <- event:
			return source
		default:
		}
		w.since = time.Now() //nolint:forbidigo // tests have a clock of their own (synctest)
		w.patience.Reset(statePatience)
	}
	w.hold(event)
	w.count(source)
	if source == nil || !w.isFull() || !w.isResumable() {
		return source
	}
	source.Stop()
	if w.total.Load() > mostOfAll && w.queue[0].after != 0 {
		first := w.queue[0]
		w.after, w.bytes, w.queue = first.after, first.bytes, []heldEvent{first}
	}
	w.count(nil)
	return nil
}

func (w *clientWatch) hold(event watch.Event) {
	held := heldEvent{event, w.after, sizeOf(event.Object)}
	w.queue = append(w.queue, held)
	w.bytes += held.bytes
}

// taken follows an event of the queue that the client has taken.
func (w *clientWatch) taken(source watch.Interface) {
	w.bytes -= w.queue[0].bytes
	w.queue[0] = heldEvent{}
	if w.queue = w.queue[1:]; len(w.queue) == 0 {
		w.queue = nil
	}
	w.since = time.Now() //nolint:forbidigo // tests have a clock of their own (synctest)
	w.count(source)
}

// isPatient returns false if the client has taken nothing for too long. Otherwise it is to be called again later.
func (w *clientWatch) isPatient() bool {
	waited := time.Since(w.since)
	if waited >= clientPatience || waited >= statePatience && !w.isResumable() && w.total.Load() > mostOfAll {
		return false
	}
	w.patience.Reset(min(statePatience, clientPatience-waited))
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

// reopen returns nil if the watch ends.
func (w *clientWatch) reopen() watch.Interface {
	if !w.isResumable() || w.idle == idleResumptions || w.ctx.Err() != nil {
		return nil
	}
	w.idle++
	events, err := w.resume(w.after)
	if err != nil { // the cache has stopped, or is being filled anew
		return nil
	}
	return events
}
