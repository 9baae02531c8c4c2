package storage

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

const (
	// emptyFrom is the least number of events for which a window is emptied after a burst. largeFrom is the least
	// number of bytes of objects that are no longer stored for which a quiet window is emptied.
	emptyFrom = 1000
	largeFrom = 8 << 20

	// leastCapacity and mostCapacity bound the window of a watch cache: defaultLowerBoundCapacity and
	// defaultUpperBoundCapacity of k8s.io/apiserver's storage/cacher.
	leastCapacity = 100
	mostCapacity  = 1024 * leastCapacity

	// fillerAge is more than the age at which the cache may drop an event.
	fillerAge = cacher.DefaultEventFreshDuration + time.Second
	// fillerKey is the key of a filler. It is below the prefix of no resource.
	fillerKey = "-"

	// fillersAtOnce fillers are sent at once, followed by a fillerPause. A watcher has room for more (chanSize of
	// k8s.io/apiserver's storage/cacher, at least 10).
	fillersAtOnce = 8
	fillerPause   = time.Millisecond
)

// The window of a quiet resource is emptied with fillers: events of an object whose key no list and no watcher covers.
// Fillers replace past events, and their times make the cache halve its capacity down to the least. There is no other
// way to empty a running cache: a cache that restarts ends all its watches. TestCapacityIsThatOfTheCache and
// TestWindowIsEmptied fail if the cache sizes its window differently.
//
// Fillers have a later revision than the last event, and etcd has confirmed that there are no other events up to it. So
// a watcher that resumes from an earlier revision has to list again.

// emptyAfter empties the window as soon as etcd confirms that there are no more events. It returns the function that
// requests this from etcd, or nil if the window has few events, or has events after the given revision.
func (w *window) emptyAfter(revision int64) (ask func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept < emptyFrom {
		return nil
	}
	return w.emptyLocked(revision)
}

// emptyLargeAfter is emptyAfter for a window that keeps many bytes in any number of events.
func (w *window) emptyLargeAfter(revision int64) (ask func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.capacity.bytes < largeFrom {
		return nil
	}
	return w.emptyLocked(revision)
}

func (w *window) emptyLocked(revision int64) (ask func() error) {
	if w.last > revision || w.progress == nil {
		return nil
	}
	w.emptying = true
	return w.progress
}

// Empty implements etcd.Window.
func (w *window) Empty(revision int64) { requestProgress(w.emptyAfter(revision)) }

// EmptyLarge implements etcd.Window.
func (w *window) EmptyLarge(revision int64) { requestProgress(w.emptyLargeAfter(revision)) }

// requestProgress calls the function that requests the progress of a watch, unless it is nil. An error means that there is no
// watch; its successor begins with an empty window.
func requestProgress(progress func() error) {
	if progress != nil {
		_ = progress()
	}
}

// keyOf returns the key function of the cache.
func (w *window) keyOf(next func(runtime.Object) (string, error)) func(runtime.Object) (string, error) {
	return func(object runtime.Object) (string, error) {
		if isFiller(object) {
			return fillerKey, nil
		}
		return next(object)
	}
}

// attributesOf returns the attribute function of the cache.
func (w *window) attributesOf(next apistorage.AttrFunc) apistorage.AttrFunc {
	return func(object runtime.Object) (labels.Set, fields.Set, error) {
		if isFiller(object) {
			return nil, nil, nil
		}
		return next(object)
	}
}

// isFiller reports whether an object is a filler. All stored objects have names.
func isFiller(object runtime.Object) bool {
	m, err := meta.Accessor(object)
	return err == nil && m.GetName() == ""
}

// capacity computes the capacity of a watch cache's window from the times of its events.
type capacity struct {
	events     []keptEvent // a ring; its length is the capacity
	start, end int         // the positions of the first event and after the last one, counted from the start
	bytes      int         // of the events in the ring
}

// keptEvent is an event in the window of a watch cache.
type keptEvent struct {
	time  time.Time
	bytes int // of the object that is no longer stored
}

func (c *capacity) full() bool { return c.end-c.start == len(c.events) }

func (c *capacity) at(position int) keptEvent { return c.events[position%len(c.events)] }

// drop drops the first events, up to a position.
func (c *capacity) drop(until int) {
	for ; c.start < until; c.start++ {
		c.bytes -= c.at(c.start).bytes
	}
}

// add adds an event as the cache does: it doubles the capacity when recent events use it up, and halves it when the
// events in three quarters of it are old.
func (c *capacity) add(event keptEvent) {
	if c.events == nil {
		c.events = make([]keptEvent, leastCapacity)
	}
	if c.full() {
		switch {
		case event.time.Sub(c.at(c.start).time) < cacher.DefaultEventFreshDuration:
			c.resize(min(2*len(c.events), mostCapacity))
		case event.time.Sub(c.at(c.end-len(c.events)/4).time) > cacher.DefaultEventFreshDuration:
			c.resize(max(len(c.events)/2, leastCapacity))
		}
	}
	if c.full() {
		c.drop(c.start + 1)
	}
	c.events[c.end%len(c.events)] = event
	c.end++
	c.bytes += event.bytes
}

func (c *capacity) resize(length int) {
	if length == len(c.events) {
		return
	}
	events := make([]keptEvent, length)
	c.drop(c.end - length)
	for i := c.start; i < c.end; i++ {
		events[i%length] = c.at(i)
	}
	c.events = events
}

// large reports whether the next event halves the capacity if it is late enough.
func (c *capacity) large() bool { return c.full() && len(c.events) > leastCapacity }

// filling empties a window after a bookmark, which confirms that there are no more events up to its revision.
type filling struct {
	window  *window
	object  runtime.Object // the filler
	fillers int            // the number that was sent; before the first, the cache has none
}

// fillAt returns the filling for a bookmark; nil if the window need not be emptied, or not at this revision.
func (w *window) fillAt(bookmark runtime.Object) *filling {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.emptying {
		return nil
	}
	f := &filling{window: w, object: w.newFunc()}
	if revision, ok := f.follow(bookmark); !ok || revision <= w.last {
		return nil
	}
	w.emptying = false
	return f
}

// follow gives the next fillers the revision of a bookmark, and returns it.
func (f *filling) follow(bookmark runtime.Object) (revision int64, ok bool) {
	from, err := meta.Accessor(bookmark)
	if err != nil {
		return 0, false
	}
	to, err := meta.Accessor(f.object)
	if err != nil {
		return 0, false
	}
	revision, err = strconv.ParseInt(from.GetResourceVersion(), 10, 64)
	to.SetResourceVersion(from.GetResourceVersion())
	return revision, err == nil
}

// next returns the next filler, and whether the window then holds only fillers.
func (f *filling) next() (filler watch.Event, done bool) {
	w := f.window
	w.mu.Lock()
	defer w.mu.Unlock()
	kind := watch.Modified
	if f.fillers == 0 {
		kind = watch.Added
	}
	filler = f.eventLocked(kind)
	done = f.fillers >= leastCapacity && len(w.capacity.events) == leastCapacity
	if done {
		w.kept, w.emptying = 0, false
	}
	return filler, done
}

// last returns the event that removes the filler from the cache.
func (f *filling) last() watch.Event {
	f.window.mu.Lock()
	defer f.window.mu.Unlock()
	return f.eventLocked(watch.Deleted)
}

func (f *filling) eventLocked(kind watch.EventType) watch.Event {
	w := f.window
	if kind != watch.Modified || w.capacity.large() {
		w.clock = w.clock.Add(fillerAge)
	}
	w.capacity.add(keptEvent{time: w.clock})
	f.fillers++
	// Each filler has its own object, because the next one may have another revision.
	return watch.Event{Type: kind, Object: timedObject{f.object.DeepCopyObject(), w.clock}}
}

// fill sends fillers until the window is empty, or until another event arrives, which it returns. It returns false if
// the watch is over.
//
// The cache passes every filler to every watcher, and ends a watcher that falls behind. So fillers come no faster than
// a watcher can take them.
func (w *windowWatch) fill(f *filling) (next *watch.Event, ok bool) {
	pace := time.NewTicker(fillerPause)
	defer pace.Stop()
	for done := false; !done; {
		for i := 0; i < fillersAtOnce && !done; i++ {
			var filler watch.Event
			if filler, done = f.next(); !w.send(filler) {
				return nil, false
			}
		}
		next, ok := w.pause(f, pace.C)
		if !ok {
			return nil, false
		}
		if next != nil {
			return next, w.send(f.last())
		}
	}
	return nil, w.send(f.last())
}

// pause waits for the next tick. It passes bookmarks on, and returns another event if there is one.
func (w *windowWatch) pause(f *filling, tick <-chan time.Time) (next *watch.Event, ok bool) {
	for {
		select {
		case <-w.stopped:
			return nil, false
		case <-tick:
			return nil, true
		case event, more := <-w.Interface.ResultChan():
			if !more {
				return nil, false
			}
			if event.Type != watch.Bookmark {
				return &event, true
			}
			if _, ok := f.follow(event.Object); !ok || !w.send(event) {
				return nil, false
			}
		}
	}
}
