package storage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Reads and writes begin no watch cache. The first watch does.
func TestCacheBeginsWithAWatch(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	for what, do := range map[string]func() error{
		"create": func() error { return maps.create("team", "a") },
		"get": func() error {
			return maps.Get(t.Context(), maps.key("team", "a"), apistorage.GetOptions{ResourceVersion: "0", IgnoreNotFound: true}, &corev1.ConfigMap{})
		},
		"list":              maps.list,
		"list consistently": maps.listConsistently,
		"update":            func() error { return maps.change("team", "b", func(runtime.Object) {}) },
		"check readiness":   maps.ReadinessCheck,
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, maps.remove("team", "a"))
	if maps.hasCache() {
		t.Fatal("there is a watch cache before there is a watch")
	}
	maps.watchFrom(t, t.Context(), "")
	if !maps.hasCache() {
		t.Error("there is no watch cache after a watch")
	}
}

// Lists begin a cache once they have read many objects.
func TestCacheBeginsWithLargeLists(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	maps.Interface.(*onDemand).listed.n.Store(listsWithoutCache - 2)
	must(t, maps.list())
	if maps.hasCache() {
		t.Fatalf("there is a watch cache after lists of fewer than %d objects", listsWithoutCache)
	}
	must(t, maps.list())
	if !maps.hasCache() {
		t.Errorf("there is no watch cache after lists of %d objects", listsWithoutCache)
	}
}

// Too many concurrent lists begin a cache, too. It serves them.
func TestCacheBeginsWithManyLists(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	demanded := maps.Interface.(*onDemand)
	demanded.lists.Store(listsAtATime - 1)
	must(t, maps.list())
	if maps.hasCache() {
		t.Fatalf("there is a watch cache with %d lists at a time", listsAtATime)
	}
	demanded.lists.Add(1)
	must(t, maps.list())
	if demanded.filled.Load() == nil {
		t.Errorf("the watch cache is not filled after %d lists at a time", listsAtATime+1)
	}
	if n := demanded.lists.Load(); n != listsAtATime {
		t.Errorf("%d lists at a time are left, want %d", n, listsAtATime)
	}
}

// A list is the same with and without a cache.
func TestListsAreTheSame(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	var lists [2]corev1.ConfigMapList
	for i := range lists {
		must(t, maps.GetList(t.Context(), maps.prefix, apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything}, &lists[i]))
		maps.watchFrom(t, t.Context(), "") // begins the cache
	}
	if difference := cmp.Diff(lists[0].Items, lists[1].Items); difference != "" || len(lists[0].Items) != 1 {
		t.Errorf("items from etcd, and from the cache (-etcd +cache): %s", difference)
	}
	if kind := lists[0].Items[0].TypeMeta; kind != (metav1.TypeMeta{}) {
		t.Errorf("an item has %v", kind)
	}
}

// While a cache cannot be filled, etcd serves reads and writes.
func TestUnfilledCacheLeavesReadsToEtcd(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "sound"))
	s.corrupt(t, maps.key("team", "damaged"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := maps.watch(ctx, "0"); !errors.Is(err, context.Canceled) {
		t.Errorf("a watch that does not wait: %v", err)
	}
	if err := maps.list(); err == nil || !strings.Contains(described(err), "/team/damaged") {
		t.Errorf("a list: %v", err)
	}
	must(t, maps.change("team", "sound", func(runtime.Object) {}))
	must(t, maps.ReadinessCheck())
}

// Many concurrent watches begin one cache, and each watch gets the stored objects.
func TestCacheBeginsOnce(t *testing.T) {
	const watches = 20
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	demanded := maps.Interface.(*onDemand)
	var opened atomic.Int64
	next := demanded.open
	demanded.open = func() (*watchCache, error) {
		opened.Add(1)
		return next()
	}
	var watching sync.WaitGroup
	for range watches {
		watching.Go(func() {
			events, err := maps.watch(t.Context(), "0")
			if err != nil {
				t.Error(err)
				return
			}
			defer events.Stop()
			if event := <-events.ResultChan(); event.Type != watch.Added || nameOf(event) != "a" {
				t.Errorf("a watch gets %v", event)
			}
		})
	}
	watching.Wait()
	if n := opened.Load(); n != 1 {
		t.Errorf("%d caches were opened", n)
	}
}

// A client that has listed before the cache began can watch from there, and misses nothing.
func TestWatchFromBeforeTheCacheMissesNothing(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "before"))
	listed := maps.listedAt(t)
	must(t, maps.create("team", "between"))
	must(t, maps.remove("team", "before"))
	maps.watchFrom(t, t.Context(), "")
	events := maps.watchFrom(t, t.Context(), listed)
	must(t, maps.create("team", "after"))
	for _, want := range []struct {
		kind watch.EventType
		name string
	}{{watch.Added, "between"}, {watch.Deleted, "before"}, {watch.Added, "after"}} {
		if event := <-events; event.Type != want.kind || nameOf(event) != want.name {
			t.Errorf("the watch gets %s %s, want %s %s", event.Type, nameOf(event), want.kind, want.name)
		}
	}
}

// A watch from before the store was opened fails, as from before the start of a cache that begins
// with the server.
func TestWatchFromBeforeTheStoreExpires(t *testing.T) {
	s := open(t)
	must(t, s.namespaceStorage(t).create("", "team"))
	revision, err := s.store.Revision(t.Context())
	must(t, err)
	maps := s.configMapStorage(t)
	maps.Interface.(*onDemand).opened = uint64(revision)
	must(t, maps.create("team", "a"))
	for from, expired := range map[int64]bool{revision - 1: true, revision: false} {
		event := <-maps.watchFrom(t, t.Context(), strconv.FormatInt(from, 10))
		if got := apierrors.IsResourceExpired(apierrors.FromObject(event.Object)); got != expired {
			t.Errorf("from revision %d, where %d is the first of this store: %v", from, revision, event)
		}
	}
}

// The first watch of this process needs no cache: it gets the initial state, the bookmark after it,
// and the events. A second concurrent watch has a cache.
func TestFirstWatchOfThisProcessNeedsNoCache(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	ctx, cancel := context.WithCancel(fromThisProcess(t))
	streamed := apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything, SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	streamed.Predicate.AllowWatchBookmarks = true
	first, err := maps.Watch(ctx, maps.prefix, streamed)
	must(t, err)
	must(t, maps.create("team", "b"))
	seen := map[watch.EventType][]string{}
	for len(seen[watch.Added]) < 2 || len(seen[watch.Bookmark]) == 0 {
		event := <-first.ResultChan()
		seen[event.Type] = append(seen[event.Type], nameOf(event))
	}
	if maps.hasCache() {
		t.Error("the first watch has begun a cache")
	}
	cancel()
	for range first.ResultChan() { // until it has ended
	}
	eventually.Holds(t, "the first watch is forgotten", func() bool {
		demanded := maps.Interface.(*onDemand)
		demanded.mu.Lock()
		defer demanded.mu.Unlock()
		return !demanded.watched
	})
	maps.watchFrom(t, fromThisProcess(t), "0")
	if maps.hasCache() {
		t.Error("a watch has begun a cache although there is no other")
	}
	if event := <-maps.watchFrom(t, fromThisProcess(t), "0"); event.Type != watch.Added {
		t.Errorf("a second watch gets %v", event)
	}
	if !maps.hasCache() {
		t.Error("a second watch has begun no cache")
	}
}

// Servers that share an etcd do not open the watches of their informers there.
func TestWatchOfThisProcessOnSharedStoreBeginsACache(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	maps.Interface.(*onDemand).remote = true
	maps.watchFrom(t, fromThisProcess(t), "0")
	if !maps.hasCache() {
		t.Error("there is no watch cache")
	}
}

// A storage that is stopped ends the watches without a cache, and begins no cache.
func TestStoppedStorageEndsItsWatches(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	events := maps.watchFrom(t, fromThisProcess(t), "1")
	maps.Interface.(*onDemand).stop()
	for range events { // until it has ended
	}
	if _, err := maps.watch(t.Context(), ""); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a watch after that: %v", err)
	}
}

// A watch of this process for the objects of a name, in all namespaces, decodes no others: here they would end it.
func TestWatchOfNameDecodesNothingElse(t *testing.T) {
	s := open(t)
	maps, namespaces := s.configMapStorage(t), s.namespaceStorage(t)
	for _, namespace := range []string{"team", "other", "third"} {
		must(t, namespaces.create("", namespace))
	}
	must(t, maps.create("team", "wanted"))
	s.corrupt(t, maps.key("team", "damaged"))
	watched, err := maps.Watch(fromThisProcess(t), maps.prefix, apistorage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: named("wanted")})
	must(t, err)
	defer watched.Stop()
	next := func(kind watch.EventType, namespace string) {
		t.Helper()
		event := <-watched.ResultChan()
		m, err := meta.Accessor(event.Object)
		if err != nil || event.Type != kind || m.GetName() != "wanted" || m.GetNamespace() != namespace {
			t.Fatalf("%v, want %s of wanted in %s: %v", event, kind, namespace, err)
		}
	}
	next(watch.Added, "team")
	s.corrupt(t, maps.key("other", "damaged"))
	must(t, maps.create("other", "wanted"))
	next(watch.Added, "other")
	must(t, maps.create("other", "unwanted"))
	must(t, maps.change("team", "wanted", func(obj runtime.Object) { obj.(*corev1.ConfigMap).Data = map[string]string{"a": "b"} }))
	next(watch.Modified, "team")
	must(t, maps.remove("team", "wanted"))
	next(watch.Deleted, "team")
	if maps.hasCache() {
		t.Error("there is a watch cache")
	}
}

func named(name string) apistorage.SelectionPredicate {
	return apistorage.SelectionPredicate{
		Label: labels.Everything(), Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name), GetAttrs: apistorage.DefaultNamespaceScopedAttr,
		AllowWatchBookmarks: true,
	}
}

// BenchmarkWatchOfName begins a watch for one of 2 000 objects: with OnlyNamed, and with k8s.io/apiserver alone.
func BenchmarkWatchOfName(b *testing.B) {
	s := open(b)
	maps := s.configMapStorage(b)
	must(b, s.namespaceStorage(b).create("", "team"))
	for i := range 2000 {
		must(b, maps.create("team", strconv.Itoa(i)))
	}
	demanded := maps.Interface.(*onDemand)
	for name, watch := range map[string]func(context.Context, string, apistorage.ListOptions) (watch.Interface, error){
		"OnlyNamed": demanded.watchDirectly, "upstream": demanded.Interface.Watch,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				watched, err := watch(b.Context(), maps.prefix, apistorage.ListOptions{SendInitialEvents: new(true), Recursive: true, Predicate: named("1000")})
				must(b, err)
				<-watched.ResultChan() // the object
				<-watched.ResultChan() // the bookmark after all objects
				watched.Stop()
			}
		})
	}
}

// fromThisProcess returns the context of a request from this process, which ends with the test.
func fromThisProcess(t *testing.T) context.Context {
	t.Helper()
	var within context.Context
	transport := inprocess.Transport(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		within = context.WithoutCancel(r.Context())
	}))
	response, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	must(t, err)
	must(t, response.Body.Close())
	ctx, cancel := context.WithCancel(within)
	t.Cleanup(cancel)
	return ctx
}

func (o objects) hasCache() bool {
	demanded := o.Interface.(*onDemand)
	demanded.mu.Lock()
	defer demanded.mu.Unlock()
	return demanded.cache != nil
}

func (o objects) watch(ctx context.Context, revision string) (watch.Interface, error) {
	return o.Watch(ctx, o.prefix, apistorage.ListOptions{ResourceVersion: revision, Recursive: true, Predicate: apistorage.Everything})
}

// watchFrom watches until the test ends.
func (o objects) watchFrom(t testing.TB, ctx context.Context, revision string) <-chan watch.Event {
	t.Helper()
	events, err := o.watch(ctx, revision)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	return events.ResultChan()
}

// listedAt lists objects, and returns the resourceVersion of the list.
func (o objects) listedAt(t *testing.T) string {
	t.Helper()
	list := &corev1.ConfigMapList{}
	must(t, o.GetList(t.Context(), o.prefix, apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything}, list))
	return list.ResourceVersion
}

func nameOf(event watch.Event) string {
	m, err := meta.Accessor(event.Object)
	if err != nil {
		return ""
	}
	return m.GetName()
}
