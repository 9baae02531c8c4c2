package storage

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func newConfigMap() apiruntime.Object { return &corev1.ConfigMap{} }

// Changes are at least changeTime apart; creations and the initial state keep their times.
func TestChangesAdvanceTheClockOfAWindow(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	h := &window{newFunc: newConfigMap}
	step := int(changeTime / time.Millisecond)
	for i, event := range []struct {
		kind      watch.EventType
		now, want int
	}{
		{watch.Modified, 0, 0},
		{watch.Modified, 1, step},
		{watch.Added, 2, step},
		{watch.Deleted, 3, 2 * step},
		{watch.Modified, 1000, 1000},
		{watch.Added, 1001, 1001},
	} {
		object := timedObject{configMap("a", i+1), at(event.now)}
		got := h.take(watch.Event{Type: event.kind, Object: object}).Object.(apistorage.WatchEventWithRecordTime)
		if !got.RecordTime().Equal(at(event.want)) {
			t.Errorf("event %d: %s, want %s", i, got.RecordTime().Sub(began), at(event.want).Sub(began))
		}
	}
	initial := watch.Event{Type: watch.Added, Object: configMap("b", 7)}
	if got := h.take(initial); got != initial {
		t.Errorf("initial state was changed to %v", got)
	}
}

// A cache keeps its last keptSnapshots states, and at most twice as many.
func TestWindowDropsStates(t *testing.T) {
	h := &window{newFunc: newConfigMap}
	states := &kept{}
	h.of(states)
	for revision := 1; revision <= 10*keptSnapshots; revision++ {
		h.take(watch.Event{Type: watch.Added, Object: timedObject{configMap("a", revision), time.Unix(0, 0)}})
		if n := revision + 1 - states.before; n > 2*keptSnapshots || n < min(revision, keptSnapshots) {
			t.Fatalf("at revision %d the states since %d are kept", revision, states.before)
		}
	}
}

// kept records the first revision at which a cache keeps its state.
type kept struct{ before int }

func (k *kept) Compact(resourceVersion string) error {
	var err error
	k.before, err = strconv.Atoi(resourceVersion)
	return err
}

// In a burst of changes, the cache keeps at least windowChanges, and at most three times as many.
func TestWindowIsBounded(t *testing.T) {
	const n = 4 * windowChanges
	source := newSource()
	cached := source.cache(t, &window{newFunc: newConfigMap})
	source.send(watch.Added, configMap("a", 2))
	for revision := 3; revision <= n; revision++ {
		source.send(watch.Modified, configMap("a", revision))
	}
	if err := cached.arrived(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if event := cached.firstAfter(t, n-3*windowChanges-1); !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
		t.Errorf("more than %d changes are kept: a watch gets %v", 3*windowChanges, event)
	}
	events := cached.watch(t, n-windowChanges)
	for want := n - windowChanges + 1; want <= n; {
		event, isWatched := <-events
		if !isWatched {
			events = cached.watch(t, want-1) // as in firstAfter
			continue
		}
		if got := revisionOf(event); event.Type != watch.Modified || got != want {
			t.Fatalf("%s at %d, want a change at %d", event.Type, got, want)
		}
		want++
	}
}

// The cache keeps windowBytes of large changes, or the last leastCapacity of them; none when the resource is quiet. It
// keeps later small changes as before.
func TestWindowIsBoundedInBytes(t *testing.T) {
	for size, most := range map[int]int{1 << 20: leastCapacity, 100 << 10: 4 * windowBytes / (100 << 10)} {
		const n = 3000
		past, source := &window{newFunc: newConfigMap}, newSource()
		cached := source.cache(t, past)
		data := map[string][]byte{"data": make([]byte, size)}
		large := func(revision int) apiruntime.Object {
			object := configMap("a", revision)
			object.BinaryData = data
			return object
		}
		source.send(watch.Added, large(2))
		for revision := 3; revision <= n; revision++ {
			source.send(watch.Modified, large(revision))
		}
		must(t, cached.arrived(t.Context(), n))
		if event := cached.firstAfter(t, n-most-1); !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
			t.Errorf("more than %d changes of %d bytes are kept: a watch gets %s", most, size, event.Type)
		}
		if event := cached.firstAfter(t, n-leastCapacity+1); revisionOf(event) != n-leastCapacity+2 {
			t.Errorf("fewer than %d changes of %d bytes are kept: a watch gets %s", leastCapacity, size, event.Type)
		}
		if past.emptyLargeAfter(n-1) != nil {
			t.Error("a window is emptied in which there was an event a moment ago")
		}
		if past.emptyLargeAfter(n) == nil {
			t.Fatalf("a window of changes of %d bytes is not emptied", size)
		}
		source.events.Action(watch.Bookmark, configMap("", n+1))
		eventually.Succeeds(t, func() error {
			if event := cached.firstAfter(t, n-1); !isExpired(event) {
				return fmt.Errorf("large changes are kept in a window that was emptied: a watch gets %s", event.Type)
			}
			return nil
		})
		if past.emptyLargeAfter(n) != nil {
			t.Error("a window that is empty is emptied")
		}
	}
}

// The cache keeps creations like upstream's cache, at any rate.
func TestWindowKeepsCreations(t *testing.T) {
	const n = 5 * windowChanges
	source := newSource()
	cached := source.cache(t, &window{newFunc: newConfigMap})
	for revision := 2; revision <= n; revision++ {
		source.send(watch.Added, configMap(fmt.Sprint(revision), revision))
	}
	if err := cached.arrived(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if event := cached.firstAfter(t, 2); event.Type != watch.Added || revisionOf(event) != 3 {
		t.Errorf("a watch from the second creation gets %v", event)
	}
}

// The event of a deletion has the complete object, with the resourceVersion of the deletion.
func TestDeletedObjectIsWhole(t *testing.T) {
	source := newSource()
	cached := source.cache(t, &window{newFunc: newConfigMap})
	if err := cached.arrived(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	before := cached.watch(t, 1)
	object := configMap("a", 2)
	object.Labels = map[string]string{"app": "web"}
	source.send(watch.Added, object)
	deleted := object.DeepCopy()
	deleted.ResourceVersion = "3"
	source.send(watch.Deleted, deleted)
	if err := cached.arrived(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	<-before // the creation
	for name, events := range map[string]<-chan watch.Event{"a watch from before": before, "a watch that resumes": cached.watch(t, 2)} {
		event := <-events
		if shared, ok := event.Object.(apiruntime.CacheableObject); ok {
			event.Object = shared.GetObject()
		}
		got, ok := event.Object.(*corev1.ConfigMap)
		if !ok || event.Type != watch.Deleted || got.ResourceVersion != "3" || got.Labels["app"] != "web" || got.Data["payload"] == "" || got.UID != object.UID {
			t.Errorf("%s: %s %v", name, event.Type, event.Object)
		}
	}
}

// BenchmarkWindow creates 100 000 objects of 1 kB and deletes them, without and with the bounds, and reports the heap
// memory of the watch cache after that, in MB of 2^20 bytes.
func BenchmarkWindow(b *testing.B) {
	for name, past := range map[string]*window{"upstream": nil, "window": {newFunc: newConfigMap}} {
		b.Run(name, func(b *testing.B) {
			const n = 100_000
			before := heapInUse()
			source := newSource()
			cached := source.cache(b, past)
			for i := range n {
				source.send(watch.Added, configMap(fmt.Sprint(i), i+2))
			}
			for i := range n {
				source.send(watch.Deleted, configMap(fmt.Sprint(i), n+i+2))
			}
			if err := cached.arrived(b.Context(), 2*n+1); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(heapInUse()-before)/(1<<20), "MB")
			runtime.KeepAlive(cached)
		})
	}
}

func heapInUse() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

func configMap(name string, revision int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: strconv.Itoa(revision)},
		Data:       map[string]string{"payload": strings.Repeat("x", 1024)},
	}
}

func revisionOf(event watch.Event) int {
	object, ok := event.Object.(*corev1.ConfigMap)
	if !ok {
		return 0
	}
	revision, err := strconv.Atoi(object.ResourceVersion)
	if err != nil {
		return 0
	}
	return revision
}

// source is a storage that is empty at revision 1. After that, a test sends its events.
type source struct {
	apistorage.Interface
	events *watch.FakeWatcher
}

func newSource() *source { return &source{events: watch.NewFake()} }

func (s *source) send(kind watch.EventType, object apiruntime.Object) {
	s.events.Action(kind, timedObject{object, time.Now()})
}

func (s *source) GetList(_ context.Context, _ string, _ apistorage.ListOptions, list apiruntime.Object) error {
	list.(*corev1.ConfigMapList).ResourceVersion = "1"
	return nil
}

func (s *source) Watch(_ context.Context, _ string, opts apistorage.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "", nil)
	}
	return s.events, nil
}

func (s *source) Versioner() apistorage.Versioner                        { return apistorage.APIObjectVersioner{} }
func (s *source) RequestWatchProgress(context.Context) error             { return nil }
func (s *source) CompactRevision() int64                                 { return 0 }
func (s *source) EnableResourceSizeEstimation(apistorage.KeysFunc) error { return nil }

// cache returns a watch cache that is filled from the source, through the window if there is one.
func (s *source) cache(t testing.TB, past *window) cachedObjects {
	t.Helper()
	var from apistorage.Interface = s
	keyOf := func(obj apiruntime.Object) (string, error) {
		return objects{prefix: "/configmaps"}.key("default", obj.(*corev1.ConfigMap).Name), nil
	}
	if past != nil {
		from, keyOf = past.bounded(s), past.keyOf(keyOf)
	}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: from, Versioner: s.Versioner(), GroupResource: corev1.Resource("configmaps"),
		EventsHistoryWindow: cacher.DefaultEventFreshDuration, ResourcePrefix: "/configmaps",
		KeyFunc: keyOf, NewFunc: newConfigMap, NewListFunc: func() apiruntime.Object { return &corev1.ConfigMapList{} },
		GetAttrsFunc: func(apiruntime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil },
		Codec:        builtin.NewSchemes().Codecs.LegacyCodec(corev1.SchemeGroupVersion), Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if past != nil {
		past.of(cached)
	}
	// Stop waits for ever if events are on their way to watchers: the cache has room for 100 of them.
	t.Cleanup(func() { within(stopGrace, cached.Stop) })
	eventually.Holds(t, "the cache is ready", cached.Ready)
	return cachedObjects{cached}
}

type cachedObjects struct{ *cacher.Cacher }

func (c cachedObjects) watch(t *testing.T, revision int) <-chan watch.Event {
	t.Helper()
	events, err := c.Watch(t.Context(), "/configmaps", apistorage.ListOptions{ResourceVersion: strconv.Itoa(revision), Recursive: true, Predicate: apistorage.Everything})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	return events.ResultChan()
}

// firstAfter returns the first event of a watch from a revision. It watches again if the cache ends the watch before that
// event: the cache has an event before it passes it to watchers, and ends a watcher that cannot take events as fast.
func (c cachedObjects) firstAfter(t *testing.T, revision int) watch.Event {
	t.Helper()
	for {
		if event, isWatched := <-c.watch(t, revision); isWatched {
			return event
		}
	}
}

// arrived waits until the cache has all events up to a revision.
func (c cachedObjects) arrived(ctx context.Context, revision int) error {
	return c.Get(ctx, "/configmaps/default/none", apistorage.GetOptions{ResourceVersion: strconv.Itoa(revision), IgnoreNotFound: true}, &corev1.ConfigMap{})
}
