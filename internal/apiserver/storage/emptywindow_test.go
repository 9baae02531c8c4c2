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
)

// The capacity that is followed is that of the cache: its window begins with the same event.
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
					followed.add(at)
				}
			}
			if err := cached.arrived(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			oldest := followed.start + 2 // the first event has revision 2
			if event := <-cached.watch(t, oldest-1); revisionOf(event) != oldest {
				t.Errorf("a watch from %d gets %s %d, want the change after it", oldest-1, event.Type, revisionOf(event))
			}
			if event := <-cached.watch(t, oldest-2); followed.start > 0 && !isExpired(event) {
				t.Errorf("a watch from %d gets %s %d", oldest-2, event.Type, revisionOf(event))
			}
		})
	}
}

func isExpired(event watch.Event) bool {
	return event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object))
}

// After a window was filled there is nothing in it but fillers, in the least capacity, whatever was
// there before; and they are few, and not from a distant future.
func TestFillersTakeTheWholeWindow(t *testing.T) {
	const step = time.Millisecond
	for _, n := range []int{0, 1, 99, 100, 101, 150, 12_799, 12_800, 12_801, 60_000, 102_399, 102_400, 250_000} {
		var window capacity
		at := time.Unix(1000, 0)
		for range n {
			at = at.Add(step)
			window.add(at)
		}
		if n == 0 {
			window.add(at)
		}
		size := len(window.times)
		times := window.fill(at)
		if len(window.times) != leastCapacity || !window.full() || window.at(window.start).Before(times[0]) {
			t.Errorf("%d events: the window begins with %s and has a capacity of %d", n, window.at(window.start), len(window.times))
		}
		if len(times) > size/2+leastCapacity+10 || times[len(times)-1].Sub(at) > 15*time.Minute {
			t.Errorf("%d events: %d fillers, until %s after the last event", n, len(times), times[len(times)-1].Sub(at))
		}
	}
}

// A window is emptied when etcd confirms that there are no further events. Watchers get none of the
// fillers, lists neither; who resumes from before has to list again.
func TestWindowIsEmptied(t *testing.T) {
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
	if event := <-cached.watch(t, n-1); revisionOf(event) != n {
		t.Errorf("a watch gets %s %d, want the last event", event.Type, revisionOf(event))
	}
	source.events.Action(watch.Bookmark, configMap("", n+10))
	source.send(watch.Added, configMap("next", n+11))
	if event := unwrapped(<-all); event.Type != watch.Added || revisionOf(event) != n+11 {
		t.Errorf("a watcher gets %s %d", event.Type, revisionOf(event))
	}
	if err := cached.arrived(t.Context(), n+11); err != nil {
		t.Fatal(err)
	}
	if event := <-cached.watch(t, n); !isExpired(event) {
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
}
