package faults

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"
)

// mostHeld bounds the events that a late watch holds. They are objects of the watch cache, of which it makes no copies.
// A watch whose events come faster is later than its plan says.
const mostHeld = 200

// Wrap decorates the storage of a resource: the watches of clients are late, end, and are not resumed, and lists are
// answered from a former state, as Requests has drawn for them. It is a storage.Wrap.
func (i *Injector) Wrap(resource schema.GroupResource, inner storage.Interface) storage.Interface {
	return &faulty{Interface: inner, injector: i, resource: resource.String()}
}

// faulty is a storage with faults.
type faulty struct {
	storage.Interface
	injector *Injector
	resource string
	past     past
}

// Watch implements storage.Interface.
func (f *faulty) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	e := exchangeOf(ctx)
	if e == nil {
		return f.watchConfiguration(ctx, key, opts)
	}
	if e.fate.Expired {
		return expired(), nil
	}
	inner, err := f.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	late := newLateWatch(inner, f.injector.clock)
	late.lag, late.end = func(watch.Event) time.Duration { return e.fate.NextLag() }, e.fate.End
	late.shows, late.ends = f.watching(ctx, opts)
	go late.pass()
	return late, nil
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

type lateEvent struct {
	watch.Event
	due time.Time
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
	var held []lateEvent
	released := w.released()
	for source := w.inner.ResultChan(); source != nil || len(held) > 0; {
		var out chan<- watch.Event
		var next lateEvent
		var wait alarm
		if len(held) > 0 {
			next = held[0]
			if late := next.due.Sub(w.clock.Now()); late > 0 {
				wait = after(w.clock, late)
			} else {
				out = w.results
				w.shows(next.Object)
			}
		}
		in := source
		if len(held) >= mostHeld {
			in = nil
		}
		select {
		case event, ok := <-in:
			if !ok {
				source = nil
				break
			}
			held = append(held, w.late(event, held))
		case out <- next.Event:
			held[0] = lateEvent{} // for Go's garbage collector
			held = held[1:]
		case <-wait.rings:
		case <-released:
			released = w.released()
			for i := range held {
				held[i].due = w.clock.Now()
			}
		case <-end.rings:
			return
		case <-w.stopped:
			return
		}
		wait.stop()
	}
}

// late returns an event with its time, which is not before the time of an earlier event.
func (w *lateWatch) late(event watch.Event, before []lateEvent) lateEvent {
	due := w.clock.Now().Add(w.lag(event))
	if n := len(before); n > 0 && due.Before(before[n-1].due) {
		due = before[n-1].due
	}
	return lateEvent{event, due}
}

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
