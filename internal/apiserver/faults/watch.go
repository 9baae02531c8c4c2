package faults

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// mostHeld and mostHeldBytes bound the events that a late watch holds. They are objects of the watch cache, of which it
// makes no copies. A watch whose events come faster is later than its plan says.
const (
	mostHeld      = 200
	mostHeldBytes = 16 << 20
)

// Wrap decorates a storage: the watches of clients are late, end, and are not resumed, and lists and watches begin with
// a former state, as Requests has drawn for them.
func (i *Injector) Wrap(k storage.Kind, inner apistorage.Interface) apistorage.Interface {
	return &faulty{Interface: inner, injector: i, kind: k, resource: k.Resource.String()}
}

// faulty is a storage with faults.
type faulty struct {
	apistorage.Interface
	injector *Injector
	kind     storage.Kind
	resource string // of kind
	past     past
}

// Watch implements apistorage.Interface.
func (f *faulty) Watch(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	e := exchangeOf(ctx)
	if e == nil {
		return f.watchConfiguration(ctx, key, opts)
	}
	if e.fate.Expired {
		return expired(), nil
	}
	state, inner, err := f.watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	late := newLateWatch(inner, f.injector.clock)
	late.first = state
	late.lag, late.end = func(watch.Event) time.Duration { return e.fate.NextLag() }, e.fate.End
	late.shows, late.ends = f.watching(ctx, opts)
	go late.pass()
	return late, nil
}

// watch opens a watch. If it is to begin with a former state, and etcd still has that, the state is returned as events
// that come first.
func (f *faulty) watch(ctx context.Context, key string, opts apistorage.ListOptions) ([]watch.Event, watch.Interface, error) {
	if version, former := f.formerOf(ctx); former {
		list := f.kind.NewList()
		if err := f.Interface.GetList(ctx, key, exactly(version, opts), list); err == nil {
			then := opts
			then.ResourceVersion, then.ResourceVersionMatch, then.SendInitialEvents = version, "", nil
			if inner, err := f.Interface.Watch(ctx, key, then); err == nil {
				return f.initialEvents(list, version, opts), inner, nil
			}
		}
	}
	inner, err := f.Interface.Watch(ctx, key, opts)
	return nil, inner, err
}

// initialEvents returns the events with which a watch shows a state.
func (f *faulty) initialEvents(list runtime.Object, version string, opts apistorage.ListOptions) []watch.Event {
	var events []watch.Event
	_ = meta.EachListItem(list, func(item runtime.Object) error {
		events = append(events, watch.Event{Type: watch.Added, Object: item})
		return nil
	})
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents || !opts.Predicate.AllowWatchBookmarks {
		return events
	}
	end := f.kind.New()
	if o, err := meta.Accessor(end); err == nil {
		o.SetResourceVersion(version)
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		events = append(events, watch.Event{Type: watch.Bookmark, Object: end})
	}
	return events
}

// newLateWatch returns a watch without faults.
func newLateWatch(inner watch.Interface, c clock.Clock) *lateWatch {
	return &lateWatch{
		inner: inner, clock: c, lag: func(watch.Event) time.Duration { return 0 },
		shows: func(runtime.Object) {}, ends: func() {}, released: func() <-chan struct{} { return nil },
		results: make(chan watch.Event), stopped: make(chan struct{}),
	}
}

// expired returns a watch with the event with which kube-apiserver answers where the events since a resourceVersion are
// gone.
func expired() watch.Interface {
	status := apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.").Status()
	events := make(chan watch.Event, 1)
	events <- watch.Event{Type: watch.Error, Object: &status}
	close(events)
	return watch.NewProxyWatcher(events)
}

// lateWatch passes on the events of a watch late, in their order, and ends at its time. It drops the held events then:
// the client resumes after the last event that it has, or lists.
type lateWatch struct {
	inner watch.Interface
	clock clock.Clock
	// first are the events before those of the inner watch, late like them.
	first []watch.Event
	// lag draws how late an event comes; end is when the watch ends, 0: with the inner one.
	lag func(watch.Event) time.Duration
	end time.Duration
	// shows is called before an event is sent, and ends at the end.
	shows func(runtime.Object)
	ends  func()
	// released returns a channel that is closed when the held events are due at once.
	released func() <-chan struct{}
	results  chan watch.Event
	once     sync.Once
	stopped  chan struct{} // closed by Stop
}

// ResultChan implements watch.Interface.
func (w *lateWatch) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *lateWatch) Stop() { w.once.Do(func() { close(w.stopped) }) }

// pass passes events on until the watch ends.
func (w *lateWatch) pass() {
	defer close(w.results)
	defer w.ends()
	defer func() {
		w.inner.Stop()
		for range w.inner.ResultChan() { // it is closed once the watch has ended
		}
	}()
	end := after(w.clock, w.end)
	defer end.stop()
	var held backlog
	for _, event := range w.first {
		held.add(event, w.clock.Now().Add(w.lag(event)))
	}
	w.first = nil
	released := w.released()
	for source := w.inner.ResultChan(); source != nil || len(held.events) > 0; {
		var out chan<- watch.Event
		var next lateEvent
		var wait alarm
		if len(held.events) > 0 {
			next = held.events[0]
			if late := next.due.Sub(w.clock.Now()); late > 0 {
				wait = after(w.clock, late)
			} else {
				out = w.results
				w.shows(next.Object)
			}
		}
		in := source
		if held.isFull() {
			in = nil
		}
		select {
		case event, ok := <-in:
			if !ok {
				source = nil
				break
			}
			held.add(event, w.clock.Now().Add(w.lag(event)))
		case out <- next.Event:
			held.removeFirst()
		case <-wait.rings:
		case <-released:
			released = w.released()
			held.release(w.clock.Now())
		case <-end.rings:
			return
		case <-w.stopped:
			return
		}
		wait.stop()
	}
}

// backlog has the events that a late watch holds, in their order. The zero value is empty.
type backlog struct {
	events []lateEvent
	bytes  int // of the objects
}

type lateEvent struct {
	watch.Event
	due   time.Time
	bytes int
}

// add adds an event that is due at a time, but not before an earlier event.
func (b *backlog) add(event watch.Event, due time.Time) {
	if n := len(b.events); n > 0 && due.Before(b.events[n-1].due) {
		due = b.events[n-1].due
	}
	added := lateEvent{event, due, storage.SizeOf(event.Object)}
	b.events, b.bytes = append(b.events, added), b.bytes+added.bytes
}

func (b *backlog) removeFirst() {
	b.bytes -= b.events[0].bytes
	b.events[0] = lateEvent{} // for Go's garbage collector
	b.events = b.events[1:]
}

// release makes all events due.
func (b *backlog) release(now time.Time) {
	for i := range b.events {
		b.events[i].due = now
	}
}

func (b *backlog) isFull() bool { return len(b.events) >= mostHeld || b.bytes >= mostHeldBytes }

// alarm rings once. The zero value never does.
type alarm struct {
	rings <-chan time.Time
	timer clock.Timer
}

// after returns an alarm for a time from now; for 0, one that never rings.
func after(c clock.Clock, d time.Duration) alarm {
	if d == 0 {
		return alarm{}
	}
	timer := c.NewTimer(d)
	return alarm{timer.C(), timer}
}

func (a alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
