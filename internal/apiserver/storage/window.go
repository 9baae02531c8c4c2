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
	// windowChanges is how many of the latest updates and deletions a watch cache keeps at least,
	// however fast they come. It keeps at most three times as many.
	windowChanges = 5000
	// changeTime is how far the clock of a window advances, at least, from one change to the next.
	changeTime = cacher.DefaultEventFreshDuration / windowChanges
	// windowBytes bounds the bytes of objects that are no longer stored in a window: it drops the oldest events beyond
	// that, but not the last leastCapacity events. When the resource is quiet, the window drops all events.
	windowBytes = 32 << 20
	// keptSnapshots is the number of a resource's latest states that are kept for lists of a certain
	// resourceVersion, such as the next page of one; at times there are twice as many. Lists of
	// earlier states are read from etcd.
	keptSnapshots = 1000
)

// window bounds the memory that the watch cache of one resource takes for the past.
//
// What it works around: the cache keeps every event of the last 75 seconds, up to 102 400 of them,
// until others take their place. Each update and each deletion keeps an object, or two, that is no
// longer stored, whatever its size, and each event a state of the cache for lists of that resourceVersion.
// Neither the time nor the number can be configured to less.
//
// What it buys: 100 000 objects of 1 kB that were created and deleted left 560 MB in the heap. A
// deletion keeps one object now, where the cache would have kept two. Changes advance the clock by
// which the cache determines the age of its events, so that those that come fast or are large are old sooner.
// Watchers that resume have to list again if they have missed more than what is kept. Creations do
// not advance the clock: what they keep is stored anyway.
//
// The price: in a burst, the metrics of the cache on how long events take are too low.
//
// BenchmarkWindow prints the memory with and without it. TestWindowIsBounded fails should the cache
// bound what it keeps otherwise.
type window struct {
	newFunc  func() runtime.Object
	compacts atomic.Pointer[compactable] // the cache; nil at first

	mu     sync.Mutex
	clock  time.Time // guarded by mu, as is all below; that of the last event
	events int       // since the last call of compact
	first  string    // the resourceVersion of the first of these

	// What emptywindow.go needs.
	progress func() error // asks etcd for the progress of the watch
	kept     int          // events since the window was empty
	last     int64        // the revision of the last of these
	emptying bool         // it is to be emptied
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

// windowWatch passes on the events of a watch as the window is to keep them.
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

// passOn passes an event on, and after a bookmark what empties the window, if it is to be emptied.
// It returns the event that comes meanwhile, and false if the watch is over.
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

// send returns false if the watch was stopped.
func (w *windowWatch) send(event watch.Event) bool {
	select {
	case w.results <- event:
		return true
	case <-w.stopped:
		return false
	}
}

// restart follows a new watch.
func (w *window) restart(progress func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress, w.emptying = progress, false
}

// take returns an event as the cache is to keep it. Only events with a time, which are those after
// the cache's initial state, become part of its window, and bookmarks never do.
func (w *window) take(event watch.Event) watch.Event {
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
		size = sizeOf(object)
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

// withoutContent returns what the cache needs of a deleted object: its watchers get the state that
// is in the cache, with the resourceVersion of the deletion.
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

// advance returns the time of an event: its own, or a later one after many changes, or large ones.
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

// compact has the cache drop its states before the previous call's first event, once for every
// keptSnapshots events.
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
		// It fails for something that is no resourceVersion.
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
