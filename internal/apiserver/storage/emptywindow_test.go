package storage

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The computed capacity is the capacity of the cache: both windows begin with the same event.
func TestCapacityIsThatOfTheCache(t *testing.T) {
	for name, steps := range map[string][]struct {
		events int
		apart  time.Duration
	}{
		"slow":              {{250, time.Minute}},
		"fast":              {{1000, 0}},
		"fast, then slow":   {{1000, 0}, {700, time.Second}, {400, time.Minute}},
		"slow, then fast":   {{130, time.Minute}, {300, time.Millisecond}, {500, 400 * time.Millisecond}},
		"just not too fast": {{2000, cacher.DefaultEventFreshDuration / 200}},
	} {
		t.Run(name, func(t *testing.T) {
			source, followed := newSource(), capacity{}
			cached := source.cache(t, nil)
			at, last := time.Now(), 1
			for _, step := range steps {
				for range step.events {
					last++
					at = at.Add(step.apart)
					source.events.Action(watch.Modified, timedObject{configMap("a", last), at})
					followed.add(keptEvent{at, last})
				}
			}
			if err := cached.arrived(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			oldest := followed.start + 2 // the first event has revision 2
			if want := (oldest + last) * (last - oldest + 1) / 2; followed.bytes != want {
				t.Errorf("the window has %d bytes, want %d", followed.bytes, want)
			}
			if event := cached.firstAfter(t, oldest-1); revisionOf(event) != oldest {
				t.Errorf("a watch from %d gets %s %d, want the change after it", oldest-1, event.Type, revisionOf(event))
			}
			if event := cached.firstAfter(t, oldest-2); followed.start > 0 && !isExpired(event) {
				t.Errorf("a watch from %d gets %s %d", oldest-2, event.Type, revisionOf(event))
			}
		})
	}
}

func isExpired(event watch.Event) bool {
	return event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object))
}

// After a window was filled it has only fillers, in the least capacity, for any events before; and they are few, and
// not from a distant future.
func TestFillersTakeTheWholeWindow(t *testing.T) {
	const step = time.Millisecond
	for _, n := range []int{1, 99, 100, 101, 150, 12_799, 12_800, 12_801, 60_000, 102_399, 102_400, 250_000} {
		past := &window{newFunc: newConfigMap, emptying: true}
		last := time.Unix(1000, 0)
		for range n {
			last = last.Add(step)
			past.capacity.add(keptEvent{time: last})
		}
		past.clock = last
		size := len(past.capacity.events)
		f := past.fillAt(configMap("", 1))
		first, done := f.next()
		count := 1
		for ; !done; count++ {
			_, done = f.next()
		}
		f.last()
		began := first.Object.(timedObject).RecordTime()
		if c := past.capacity; len(c.events) != leastCapacity || !c.full() || c.at(c.start).time.Before(began) {
			t.Errorf("%d events: the window begins with %s and has a capacity of %d", n, c.at(c.start).time, len(c.events))
		}
		if count > size/2+leastCapacity+10 || past.clock.Sub(last) > 16*time.Minute {
			t.Errorf("%d events: %d fillers, until %s after the last event", n, count, past.clock.Sub(last))
		}
	}
}

// Other events do not wait until a window is emptied; it is emptied when there are no events again.
func TestEventsComeBeforeFillers(t *testing.T) {
	const n = 3 * emptyFrom
	past, source := &window{newFunc: newConfigMap}, &source{events: watch.NewFakeWithChanSize(n+10, false)}
	from, err := past.bounded(source).Watch(t.Context(), "/configmaps", apistorage.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Stop)
	for revision := 2; revision <= n; revision++ {
		source.send(watch.Modified, configMap("a", revision))
		<-from.ResultChan()
	}
	// read returns the fillers up to the last one or another event, and that event.
	read := func() (fillers []string, next watch.Event) {
		for event := range from.ResultChan() {
			timed, ok := event.Object.(timedObject)
			if !ok || !isFiller(timed) {
				return fillers, event
			}
			fillers = append(fillers, fmt.Sprint(event.Type, " ", revisionOf(watch.Event{Object: timed.Unwrap()})))
			if event.Type == watch.Deleted {
				return fillers, watch.Event{}
			}
		}
		t.Fatal("the watch has ended")
		return nil, watch.Event{}
	}

	if past.emptyAfter(n) == nil {
		t.Fatal("it is not emptied")
	}
	source.events.Action(watch.Bookmark, configMap("", n+1))
	source.send(watch.Modified, configMap("a", n+2))
	read() // the bookmark
	fillers, _ := read()
	if first, last := fillers[0], fillers[len(fillers)-1]; first != fmt.Sprint("ADDED ", n+1) || last != fmt.Sprint("DELETED ", n+1) || len(fillers) >= leastCapacity {
		t.Errorf("%d fillers, from %s to %s", len(fillers), first, last)
	}
	if _, event := read(); event.Type != watch.Modified {
		t.Errorf("%s, want the event that came meanwhile", event.Type)
	}

	if past.emptyAfter(n+2) == nil {
		t.Fatal("it is not emptied after the event")
	}
	source.events.Action(watch.Bookmark, configMap("", n+3))
	source.events.Action(watch.Bookmark, configMap("", n+4))
	read() // the first bookmark
	before, event := read()
	after, _ := read()
	if event.Type != watch.Bookmark || len(before)+len(after) < leastCapacity || after[len(after)-1] != fmt.Sprint("DELETED ", n+4) {
		t.Errorf("%v, %s, then %v: want fillers of the second bookmark after it", before, event.Type, after)
	}
	if past.emptyAfter(n+2) != nil {
		t.Error("it is not empty")
	}
}

// A window is emptied when etcd confirms that there are no further events. Neither watchers nor lists get the fillers.
// A watcher that resumes from an earlier revision has to list again.
//
// The cache ends a watcher that falls behind, which can happen on a busy machine, not only because of the fillers.
func TestWindowIsEmptied(t *testing.T) {
	const attempts = 5
	for range attempts {
		if windowIsEmptied(t) {
			return
		}
	}
	t.Errorf("the watcher was ended in each of %d attempts", attempts)
}

// windowIsEmptied returns false if the watcher was ended.
func windowIsEmptied(t *testing.T) (isWatched bool) {
	t.Helper()
	const n = 3 * emptyFrom
	unwrapped := func(event watch.Event) watch.Event {
		if shared, ok := event.Object.(apiruntime.CacheableObject); ok {
			event.Object = shared.GetObject()
		}
		return event
	}
	past, source := &window{newFunc: newConfigMap}, newSource()
	cached := source.cache(t, past)
	all := cached.watch(t, 1)
	for revision := 2; revision <= n; revision++ {
		source.send(watch.Added, configMap(fmt.Sprint(revision), revision))
		<-all
	}
	if past.emptyAfter(n-1) != nil {
		t.Errorf("it is emptied although there was an event after that revision")
	}
	if past.emptyAfter(n) == nil {
		t.Fatal("it is not emptied")
	}
	source.events.Action(watch.Bookmark, configMap("", n)) // no later than the last event
	if err := cached.arrived(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if event := cached.firstAfter(t, n-1); revisionOf(event) != n {
		t.Errorf("a watch gets %s %d, want the last event", event.Type, revisionOf(event))
	}
	source.events.Action(watch.Bookmark, configMap("", n+10))
	eventually.Holds(t, "the window is empty", func() bool { return past.emptyAfter(n) == nil })
	source.send(watch.Added, configMap("next", n+11))
	event, isWatched := <-all
	if event = unwrapped(event); isWatched && (event.Type != watch.Added || revisionOf(event) != n+11) {
		t.Errorf("a watcher gets %s %d", event.Type, revisionOf(event))
	}
	if err := cached.arrived(t.Context(), n+11); err != nil {
		t.Fatal(err)
	}
	if event := cached.firstAfter(t, n); !isExpired(event) {
		t.Errorf("a watch from the past gets %s %d", event.Type, revisionOf(event))
	}
	list := &corev1.ConfigMapList{}
	everything := apistorage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: apistorage.Everything}
	if err := cached.GetList(t.Context(), "/configmaps", everything, list); err != nil || len(list.Items) != n {
		t.Errorf("there are %d objects, want %d: %v", len(list.Items), n, err)
	}
	if past.emptyAfter(n+11) != nil {
		t.Errorf("it is emptied again for a single event")
	}
	return isWatched
}

// The store empties the window of a quiet resource with large changes. Its watch goes on, and lists have all objects.
func TestStoreEmptiesLargeWindows(t *testing.T) {
	t.Parallel()
	s := open(t)
	contents := s.configMapStorage(t)
	events := contents.watchFrom(t, t.Context(), "")
	must(t, contents.create("team", "changed"))
	<-events
	for i := range largeFrom>>20 + 1 {
		must(t, contents.change("team", "changed", func(object apiruntime.Object) {
			object.(*corev1.ConfigMap).BinaryData = map[string][]byte{"data": make([]byte, 1<<20), "version": {byte(i)}}
		}))
		<-events
	}
	last, err := s.store.Revision(t.Context())
	must(t, err)
	eventually.Succeeds(t, func() error {
		_, err := s.store.Client().Put(t.Context(), "/busy", "") // the window is emptied at a revision after its last event
		must(t, err)
		past, err := contents.watch(t.Context(), fmt.Sprint(last-2))
		must(t, err)
		defer past.Stop()
		if event := <-past.ResultChan(); !isExpired(event) {
			return fmt.Errorf("a watch from the past gets %s", event.Type)
		}
		return nil
	})
	must(t, contents.create("team", "new"))
	if event := <-events; event.Type != watch.Added || nameOf(event) != "new" {
		t.Errorf("the watch gets %s %s, want the new object", event.Type, nameOf(event))
	}
	var list corev1.ConfigMapList
	must(t, contents.GetList(t.Context(), contents.prefix, apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything}, &list))
	if len(list.Items) != 2 {
		t.Errorf("there are %d objects, want 2", len(list.Items))
	}
}
