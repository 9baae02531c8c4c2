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
	// emptyFrom is the number of events from which on a window is emptied.
	emptyFrom = 1000

	// leastCapacity and mostCapacity are those of a watch cache's window: defaultLowerBoundCapacity
	// and defaultUpperBoundCapacity of k8s.io/apiserver's storage/cacher.
	leastCapacity = 100
	mostCapacity  = 1024 * leastCapacity

	// fillerAge is more than the age from which on the cache does without an event.
	fillerAge = cacher.DefaultEventFreshDuration + time.Second
	// fillerKey is the key of a filler. It is below that of no resource.
	fillerKey = "-"
)

// A window of a resource that is quiet is emptied with fillers: events of an object whose key no
// list and no watcher covers. They take the place of the past, and their times have the cache halve
// its capacity down to the least. It is the only way to do so while the cache goes on: a cache that
// starts anew ends all its watches. Should the cache size its window otherwise,
// TestCapacityIsThatOfTheCache and TestWindowIsEmptied fail.
//
// Fillers have a revision after that of the last event, up to which etcd has confirmed that there
// are no others: a watcher that resumes from before it has to list again.

// emptyAfter has the window emptied as soon as etcd confirms that there are no more events. It
// returns the call that asks etcd for that, or nil if the window has hardly any events, or some
// after the given revision.
func (w *window) emptyAfter(revision int64) (ask func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kept < emptyFrom || w.last > revision || w.progress == nil {
		return nil
	}
	w.emptying = true
	return w.progress
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

// isFiller: all objects that are stored have names.
func isFiller(object runtime.Object) bool {
	m, err := meta.Accessor(object)
	return err == nil && m.GetName() == ""
}

// capacity follows the capacity of a watch cache's window, by the times of the events in it.
type capacity struct {
	times      []time.Time // a ring; its length is the capacity
	start, end int         // the positions of the first event, and after the last, counted from the very first
}

func (c *capacity) full() bool { return c.end-c.start == len(c.times) }

func (c *capacity) at(position int) time.Time { return c.times[position%len(c.times)] }

// add adds an event as the cache does: the capacity is doubled when it is used up by events that are
// recent, and halved when those in three quarters of it are old.
func (c *capacity) add(event time.Time) {
	if c.times == nil {
		c.times = make([]time.Time, leastCapacity)
	}
	if c.full() {
		switch {
		case event.Sub(c.at(c.start)) < cacher.DefaultEventFreshDuration:
			c.resize(min(2*len(c.times), mostCapacity))
		case event.Sub(c.at(c.end-len(c.times)/4)) > cacher.DefaultEventFreshDuration:
			c.resize(max(len(c.times)/2, leastCapacity))
		}
	}
	if c.full() {
		c.start++
	}
	c.times[c.end%len(c.times)] = event
	c.end++
}

func (c *capacity) resize(length int) {
	if length == len(c.times) {
		return
	}
	times := make([]time.Time, length)
	c.start = max(c.start, c.end-length)
	for i := c.start; i < c.end; i++ {
		times[i%length] = c.at(i)
	}
	c.times = times
}

// fill adds events after the given time until there are only those, in the least capacity, and
// returns their times.
func (c *capacity) fill(after time.Time) (fillers []time.Time) {
	next := after.Add(fillerAge)
	for len(fillers) < leastCapacity || len(c.times) > leastCapacity {
		if c.full() && len(c.times) > leastCapacity && len(fillers) > 0 {
			next = next.Add(fillerAge) // halves the capacity
		}
		c.add(next)
		fillers = append(fillers, next)
	}
	return fillers
}

// fillers are the events that empty a window.
type fillers struct {
	object runtime.Object
	times  []time.Time
}

// fillersAt returns those that follow a bookmark, which confirms that there are no more events up to
// its revision. There are none if the window is not to be emptied, or not at this revision.
func (w *window) fillersAt(bookmark runtime.Object) fillers {
	m, err := meta.Accessor(bookmark)
	if err != nil {
		return fillers{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if revision, err := strconv.ParseInt(m.GetResourceVersion(), 10, 64); err != nil || !w.emptying || revision <= w.last {
		return fillers{}
	}
	object := w.newFunc()
	to, err := meta.Accessor(object)
	if err != nil {
		return fillers{}
	}
	to.SetResourceVersion(m.GetResourceVersion())
	f := fillers{object, w.capacity.fill(w.clock)}
	w.clock = f.times[len(f.times)-1]
	w.kept, w.emptying = 0, false
	return f
}

// event returns the i-th event, from 0. The one after the last removes the filler from the cache.
func (f fillers) event(i int) watch.Event {
	kind := watch.Modified
	switch i {
	case 0:
		kind = watch.Added
	case len(f.times):
		kind = watch.Deleted
	}
	return watch.Event{Type: kind, Object: timedObject{f.object, f.times[min(i, len(f.times)-1)]}}
}

// fill passes fillers on, and removes them from the cache. It returns false if the watch was stopped.
func (w *windowWatch) fill(f fillers) bool {
	if len(f.times) == 0 {
		return true
	}
	for i := range len(f.times) + 1 {
		select {
		case w.results <- f.event(i):
		case <-w.stopped:
			return false
		}
	}
	return true
}
