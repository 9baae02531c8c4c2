package storage

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

const (
	// windowChanges is the least number of the latest updates and deletions that a watch cache keeps, at any rate of
	// changes. It keeps at most three times as many.
	windowChanges = 5000
	// changeTime is the least time by which a change advances the clock of a window.
	changeTime = cacher.DefaultEventFreshDuration / windowChanges
	// windowBytes bounds the bytes of objects that are no longer stored in a window: it drops the oldest events beyond
	// this limit, but not the last leastCapacity events. When the resource is quiet, the window drops all events.
	windowBytes = 32 << 20
	// keptSnapshots is the number of a resource's latest states that a watch cache keeps for lists at a
	// resourceVersion, such as the next page of a list; at times it keeps twice as many. etcd serves lists of earlier
	// states.
	keptSnapshots = 1000
)

// window bounds the memory that the watch cache of one resource takes for the past.
//
// Problem: the cache keeps every event of the last 75 seconds, up to 102 400 events, until others replace them. Each
// update and each deletion keeps one or two objects of any size that are no longer stored, and each event keeps a state
// of the cache for lists at its resourceVersion. Neither the time nor the number can be configured to less.
//
// Benefit: 100 000 objects of 1 kB that were created and deleted left 560 MB in the heap. Now a deletion keeps one
// object instead of two. Changes advance the clock by which the cache determines the age of its events, so that
// frequent or large events are old sooner. Watchers that resume have to list again if they have missed more events than
// the cache keeps. Creations do not advance the clock, because their objects are stored anyway.
//
// Cost: in a burst, the metrics of the cache on the latency of events are too low.
//
// BenchmarkWindow prints the memory with and without it. TestWindowIsBounded fails if the cache bounds its events
// differently.
type window struct {
	newFunc  func() runtime.Object
	pods     *sharedPods                 // nil for other resources
	compacts atomic.Pointer[compactable] // the cache; nil at first

	mu     sync.Mutex
	clock  time.Time // guarded by mu, like all fields below; the time of the last event
	events int       // since the last call of compact
	first  string    // the resourceVersion of the first of these

	// The fields below are for emptywindow.go.
	progress func() error // asks etcd for the progress of the watch
	kept     int          // events since the window was empty
	last     int64        // the revision of the last event
	emptying bool         // the window must be emptied
	capacity capacity
}

// compactable is the part of a watch cache that drops the states before a resourceVersion.
type compactable interface {
	Compact(resourceVersion string) error
}

// of sets the watch cache.
func (w *window) of(c compactable) { w.compacts.Store(&c) }

// bounded returns the storage from which the cache is filled.
func (w *window) bounded(direct apistorage.Interface) apistorage.Interface {
	return boundedWindow{direct, w}
}

type boundedWindow struct {
	apistorage.Interface
	window *window
}

// Watch implements storage.Interface.
func (b boundedWindow) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	source, err := b.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	passing := &windowWatch{Interface: source, results: make(chan watch.Event), stopped: make(chan struct{})}
	b.window.restart(func() error { return b.RequestWatchProgress(ctx) }) // with ctx, for the stream of this watch
	go passing.pass(b.window)
	return passing, nil
}

// windowWatch passes on the events of a watch, as changed by the window.
type windowWatch struct {
	watch.Interface
	results chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

// ResultChan implements watch.Interface.
func (w *windowWatch) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *windowWatch) Stop() {
	w.once.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

func (w *windowWatch) pass(through *window) {
	defer close(w.results)
	for event := range w.Interface.ResultChan() {
		for next := &event; next != nil; {
			var ok bool
			if next, ok = w.passOn(*next, through); !ok {
				return
			}
		}
	}
}

// passOn passes an event on. After a bookmark it empties the window, if necessary. It returns an event that arrives
// meanwhile, and false if the watch is over.
func (w *windowWatch) passOn(event watch.Event, through *window) (next *watch.Event, ok bool) {
	if !w.send(through.take(event)) {
		return nil, false
	}
	if event.Type != watch.Bookmark {
		return nil, true
	}
	f := through.fillAt(event.Object)
	if f == nil {
		return nil, true
	}
	return w.fill(f)
}

// send sends an event. It returns false if the watch was stopped.
func (w *windowWatch) send(event watch.Event) bool {
	select {
	case w.results <- event:
		return true
	case <-w.stopped:
		return false
	}
}

// restart prepares the window for a new watch.
func (w *window) restart(progress func() error) {
	w.pods.restart()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress, w.emptying = progress, false
}

// take returns the event that the cache keeps. Only events with a time become part of the cache's window: the events
// after its initial state, except bookmarks.
func (w *window) take(event watch.Event) watch.Event {
	w.pods.note(event)
	timed, ok := event.Object.(apistorage.WatchEventWithRecordTime)
	if !ok || event.Type == watch.Bookmark {
		return event
	}
	object := timed.Unwrap()
	m, err := meta.Accessor(object)
	if err != nil {
		return event
	}
	size := 0 // a new object is stored anyway
	if event.Type != watch.Added {
		size = SizeOf(object)
	}
	if event.Type == watch.Deleted {
		object = w.withoutContent(object)
	}
	at := w.advance(timed.RecordTime(), event.Type, size)
	event.Object = timedObject{object, at}
	w.compact(m.GetResourceVersion())
	w.keep(m.GetResourceVersion(), keptEvent{at, size})
	return event
}

// withoutContent returns the part of a deleted object that the cache needs. Watchers get the state in the cache, with
// the resourceVersion of the deletion.
func (w *window) withoutContent(deleted runtime.Object) runtime.Object {
	stub := w.newFunc()
	from, err := meta.Accessor(deleted)
	if err != nil {
		return deleted
	}
	to, err := meta.Accessor(stub)
	if err != nil {
		return deleted
	}
	to.SetNamespace(from.GetNamespace())
	to.SetName(from.GetName())
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
	return stub
}

// advance returns the time of an event: its own, or a later one after many or large changes.
func (w *window) advance(now time.Time, kind watch.EventType, size int) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.clock
	if kind != watch.Added {
		next = next.Add(max(changeTime, time.Duration(float64(cacher.DefaultEventFreshDuration)*float64(size)/windowBytes)))
	}
	if now.After(next) {
		next = now
	}
	w.clock = next
	return next
}

// compact makes the cache drop old states once for every keptSnapshots events: all states before the previous drop.
func (w *window) compact(resourceVersion string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	if w.first == "" {
		w.first = resourceVersion
	}
	if w.events < keptSnapshots {
		return
	}
	if c := w.compacts.Load(); c != nil {
		// It only fails for an invalid resourceVersion.
		_ = (*c).Compact(w.first)
	}
	w.events, w.first = 0, resourceVersion
}

// keep counts an event.
func (w *window) keep(resourceVersion string, event keptEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.capacity.add(event)
	w.kept++
	w.emptying = false
	if revision, err := strconv.ParseInt(resourceVersion, 10, 64); err == nil {
		w.last = revision
	}
}

// timedObject is an object with the time of its event.
type timedObject struct {
	runtime.Object
	time time.Time
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o timedObject) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(o.Object)
	if err != nil {
		return nil
	}
	return m
}

// DeepCopyObject implements runtime.Object.
func (o timedObject) DeepCopyObject() runtime.Object {
	return timedObject{o.Object.DeepCopyObject(), o.time}
}

// RecordTime implements storage.WatchEventWithRecordTime.
func (o timedObject) RecordTime() time.Time { return o.time }

// Unwrap implements storage.WatchEventWithRecordTime.
func (o timedObject) Unwrap() runtime.Object { return o.Object }
