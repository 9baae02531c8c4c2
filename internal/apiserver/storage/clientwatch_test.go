package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// A client that takes no event while 500 objects change gets all changes afterwards, in order, for each kind of start
// of the watch. The cache has ended the watch meanwhile.
func TestClientBehindIsNotEnded(t *testing.T) {
	const first, last = 2, 502
	open(t) // announces that etcd supports progress requests
	for name, opts := range map[string]apistorage.ListOptions{
		"from a revision":         {ResourceVersion: strconv.Itoa(first)},
		"from a state":            {ResourceVersion: "0"},
		"from a state, with mark": {SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			source := newSource()
			cached := source.cache(t, &window{newFunc: newConfigMap})
			source.send(watch.Added, configMap("a", first))
			must(t, cached.arrived(t.Context(), first))
			opts.Recursive, opts.Predicate = true, apistorage.Everything
			opts.Predicate.AllowWatchBookmarks = opts.SendInitialEvents != nil
			var opened atomic.Int64
			events, err := watchFor(t.Context(), opts, new(atomic.Int64), func(ctx context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
				opened.Add(1)
				return cached.Watch(ctx, "/configmaps", opts)
			})
			must(t, err)
			defer events.Stop()
			seen := first
			if opts.ResourceVersion != strconv.Itoa(first) {
				seen = initialState(t, events.ResultChan(), opts.SendInitialEvents != nil, source)
			}
			for revision := seen + 1; revision <= last; revision++ {
				source.send(watch.Modified, configMap("a", revision))
			}
			must(t, cached.arrived(t.Context(), last))
			for want := seen + 1; want <= last; want++ {
				event, ok := <-events.ResultChan()
				if !ok || event.Type != watch.Modified || at(event) != want {
					t.Fatalf("the watch gets %s %d (more: %t), want the change at %d", event.Type, at(event), ok, want)
				}
			}
			if opened.Load() < 2 {
				t.Error("the cache has not ended the watch: the test shows nothing")
			}
		})
	}
}

// initialState reads the first events of a watch: a state, and the bookmark or the change that shows that the state is
// complete. It returns the revision of the last event.
func initialState(t *testing.T, events <-chan watch.Event, marked bool, source *source) (seen int) {
	t.Helper()
	if event := <-events; event.Type != watch.Added || nameOf(event) != "a" {
		t.Fatalf("the watch begins with %v", event)
	}
	if !marked {
		source.send(watch.Modified, configMap("a", 3))
	}
	event := <-events
	if want := map[bool]watch.EventType{true: watch.Bookmark, false: watch.Modified}[marked]; event.Type != want {
		t.Fatalf("after the state the watch gets %v, want %s", event, want)
	}
	return at(event)
}

// A client that has fallen behind the window of the cache gets the error that makes it list again.
func TestClientBehindTheWindowListsAgain(t *testing.T) {
	const last = 4 * windowChanges
	source := newSource()
	cached := source.cache(t, &window{newFunc: newConfigMap})
	opts := apistorage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: apistorage.Everything}
	events, err := watchFor(t.Context(), opts, new(atomic.Int64), func(ctx context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
		return cached.Watch(ctx, "/configmaps", opts)
	})
	must(t, err)
	defer events.Stop()
	source.send(watch.Added, configMap("a", 2))
	for revision := 3; revision <= last; revision++ {
		source.send(watch.Modified, configMap("a", revision))
	}
	must(t, cached.arrived(t.Context(), last))
	next := 2
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) {
				t.Errorf("the watch ends with %v", err)
			}
			if more, ok := <-events.ResultChan(); ok {
				t.Errorf("after the error the watch gets %v", more)
			}
			return
		}
		if got := at(event); got != next {
			t.Fatalf("the watch gets %d, want %d", got, next)
		}
		next++
	}
	t.Errorf("the watch ends after revision %d without an error", next-1)
}

// revisions is a source of watches, with objects of one size at the revisions from 1 on.
type revisions struct {
	size, changes int
	open          *watch.FakeWatcher // the latest watch
}

// watch opens a watch of the events after a revision. Its channel has all events at once.
func (h *revisions) watch(_ context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
	after, _ := strconv.Atoi(opts.ResourceVersion)
	h.open = watch.NewFakeWithChanSize(h.changes, false)
	data := map[string][]byte{"data": make([]byte, h.size)}
	for revision := after + 1; revision <= h.changes; revision++ {
		object := configMap("a", revision)
		object.BinaryData = data
		kind := watch.Modified
		if opts.ResourceVersion == "0" {
			kind = watch.Added // the state
		}
		h.open.Action(kind, object)
	}
	return h.open, nil
}

// A watch holds few events for a client that takes none, ends the watch of the source, and ends after clientPatience,
// not before. A client that continues gets all events in order.
func TestWhatIsHeldForSlowClientIsBounded(t *testing.T) {
	const changes = 300
	for name, c := range map[string]struct {
		size    int
		others  int64 // bytes that other watches hold
		from    string
		held    int  // events
		stopped bool // the watch of the source
	}{
		"small events":                         {100, 0, "1", mostEvents, true},
		"large events":                         {300 << 10, 0, "1", 4, true},
		"one event that is larger":             {2 * mostBytes, 0, "1", 1, true},
		"others hold much":                     {100, mostOfAll, "1", 1, true},
		"a state of small objects":             {100, 0, "0", mostEvents, false},
		"a state of large objects":             {300 << 10, 0, "0", 4, false},
		"a state while others hold nearly all": {300 << 10, mostOfAll - 1<<20, "0", 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &revisions{size: c.size, changes: changes}
				var total atomic.Int64
				total.Store(c.others)
				events, err := watchFor(t.Context(), apistorage.ListOptions{ResourceVersion: c.from}, &total, h.watch)
				must(t, err)
				time.Sleep(statePatience / 2)
				synctest.Wait()
				first := map[bool]int{true: 2, false: 1}[c.stopped]
				left := changes - first + 1 - len(h.open.ResultChan())
				if !c.stopped && left != c.held {
					t.Errorf("%d events were taken for a client that takes none, want %d", left, c.held)
				}
				held := total.Load() - c.others
				if least := int64(c.held * c.size); c.stopped && (held < least || held > least+int64(c.held)*2000) {
					t.Errorf("%d bytes are held, want those of %d events of %d bytes", held, c.held, c.size)
				}
				if most := int64(c.held * c.size); !c.stopped && held < most+int64(changes*c.size) {
					t.Errorf("%d bytes are counted for a watch whose source cannot be stopped", held)
				}
				if h.open.IsStopped() != c.stopped {
					t.Errorf("the watch of the source was stopped: %t", h.open.IsStopped())
				}
				if left := len(h.open.ResultChan()); c.stopped && left > 0 {
					t.Errorf("the watch that was stopped keeps %d events", left)
				}
				total.Store(total.Load() - c.others)
				for want := first; want <= changes; want++ {
					if event := <-events.ResultChan(); at(event) != want {
						t.Fatalf("the client gets %v, want revision %d", event, want)
					}
				}
				events.Stop()
				synctest.Wait()
				if total.Load() != 0 {
					t.Errorf("%d bytes are held after the end", total.Load())
				}
			})
		})
	}
}

// A watch ends when its client takes no event for clientPatience. A watch that begins with a state ends after
// statePatience, if all watches hold many bytes. Its bytes no longer count then.
func TestWatchEndsWhenItsClientTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		others int64
		from   string
		want   time.Duration
	}{
		"from a revision":                       {0, "1", clientPatience},
		"from a revision, others hold much":     {mostOfAll + 1, "1", clientPatience},
		"from a state":                          {0, "0", clientPatience},
		"from a state, others hold much":        {mostOfAll + 1, "0", statePatience},
		"from a state, which holds much itself": {mostOfAll - 1<<20, "0", statePatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &revisions{size: 100 << 10, changes: 50}
				var total atomic.Int64
				total.Store(c.others)
				events, err := watchFor(t.Context(), apistorage.ListOptions{ResourceVersion: c.from}, &total, h.watch)
				must(t, err)
				synctest.Wait()
				<-events.ResultChan()
				synctest.Wait()
				time.Sleep(c.want - 1)
				synctest.Wait()
				if total.Load() == c.others {
					t.Error("the watch has ended early")
				}
				time.Sleep(statePatience)
				synctest.Wait()
				if total.Load() != c.others || !h.open.IsStopped() {
					t.Errorf("%d bytes are held after the watch should have ended; its source was stopped: %t", total.Load()-c.others, h.open.IsStopped())
				}
				if event, ok := <-events.ResultChan(); ok {
					t.Errorf("a watch that has ended has revision %d", at(event))
				}
			})
		})
	}
}

// A watch that the server ends is reopened after the last event, and only if all events before it were passed on. It
// ends if it cannot be reopened, if it gets no event several times, and with its client.
func TestEndedWatchIsReopenedAfterItsLastEvent(t *testing.T) {
	added := watch.Event{Type: watch.Added, Object: configMap("a", 8)}
	modified := watch.Event{Type: watch.Modified, Object: configMap("a", 9)}
	mark := watch.Event{Type: watch.Bookmark, Object: configMap("", 11)}
	failed := watch.Event{Type: watch.Error, Object: &metav1.Status{}}
	state := apistorage.ListOptions{SendInitialEvents: new(true), ResourceVersion: "3"}
	endless := make([][]watch.Event, 2*idleResumptions)
	for name, c := range map[string]struct {
		opts    apistorage.ListOptions
		events  [][]watch.Event // of each watch that is opened; after them, opening fails
		opened  []string        // the revisions of the watches
		results int
	}{
		"the last event counts":         {apistorage.ListOptions{ResourceVersion: "7"}, [][]watch.Event{{added, modified}, {mark}, {}}, []string{"7", "9", "11", "11"}, 2},
		"nothing has come yet":          {apistorage.ListOptions{ResourceVersion: "7"}, [][]watch.Event{{}}, []string{"7", "7"}, 0},
		"the state may be incomplete":   {apistorage.ListOptions{ResourceVersion: "0"}, [][]watch.Event{{added, added}}, []string{"0"}, 2},
		"no revision at all":            {apistorage.ListOptions{}, [][]watch.Event{{added}}, []string{""}, 1},
		"a change follows the state":    {apistorage.ListOptions{}, [][]watch.Event{{added, modified}}, []string{"", "9"}, 2},
		"a bookmark follows the state":  {state, [][]watch.Event{{added, mark}}, []string{"3", "11"}, 1},
		"a state that is not completed": {state, [][]watch.Event{{added}}, []string{"3"}, 1},
		"an error ends it":              {apistorage.ListOptions{ResourceVersion: "7"}, [][]watch.Event{{failed}, {}}, []string{"7"}, 1},
		"nothing comes for ever":        {apistorage.ListOptions{ResourceVersion: "7"}, endless, slices.Repeat([]string{"7"}, idleResumptions+1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened []string
				events, err := watchFor(t.Context(), c.opts, new(atomic.Int64), func(_ context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
					if len(opened) > 0 && (opts.SendInitialEvents != nil || opts.ResourceVersionMatch != "") {
						t.Errorf("a watch is opened anew with %+v", opts)
					}
					opened = append(opened, opts.ResourceVersion)
					if len(opened) > len(c.events) {
						return nil, apierrors.NewTooManyRequests("no more", 1)
					}
					return endedAfter(c.events[len(opened)-1]), nil
				})
				must(t, err)
				results := 0
				for range events.ResultChan() {
					results++
				}
				if !slices.Equal(opened, c.opened) || results != c.results {
					t.Errorf("watches are opened at %q with %d results, want %q with %d", opened, results, c.opened, c.results)
				}
			})
		})
	}
}

// at returns the revision of an event's object, which several watches may share.
func at(event watch.Event) int {
	revision, err := apistorage.APIObjectVersioner{}.ObjectResourceVersion(event.Object)
	if err != nil {
		return 0
	}
	return int(revision)
}

// endedAfter returns a watch that the server ends after some events.
func endedAfter(events []watch.Event) watch.Interface {
	w := watch.NewFakeWithChanSize(len(events), false)
	for _, event := range events {
		w.Action(event.Type, event.Object)
	}
	w.Stop()
	return w
}

// A client that stops its watch ends the watch of the cache, even while an event waits for the client.
func TestStoppedClientWatchEndsTheWatchOfTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := watch.NewFakeWithChanSize(mostEvents/2, false)
		for revision := range mostEvents / 2 {
			source.Modify(configMap("a", revision+2))
		}
		opened := 0
		opts := apistorage.ListOptions{ResourceVersion: "1"}
		events, err := watchFor(t.Context(), opts, new(atomic.Int64), func(context.Context, apistorage.ListOptions) (watch.Interface, error) {
			opened++
			return source, nil
		})
		must(t, err)
		synctest.Wait()
		events.Stop()
		synctest.Wait()
		if !source.IsStopped() || opened != 1 {
			t.Errorf("the watch of the cache was ended: %t; %d watches were opened", source.IsStopped(), opened)
		}
		if left := len(source.ResultChan()); left > 0 {
			t.Errorf("the watch of the cache keeps %d events", left)
		}
	})
}

// A client that does not request bookmarks gets none. A watch that cannot be opened returns an error.
func TestClientWatchWithoutBookmarks(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		opts := apistorage.ListOptions{ResourceVersion: "1"}
		opts.Predicate.AllowWatchBookmarks = wanted
		events, err := watchFor(t.Context(), opts, new(atomic.Int64), func(context.Context, apistorage.ListOptions) (watch.Interface, error) {
			return endedAfter([]watch.Event{{Type: watch.Bookmark, Object: &corev1.ConfigMap{}}, {Type: watch.Error, Object: &metav1.Status{}}}), nil
		})
		must(t, err)
		got := false
		for event := range events.ResultChan() {
			got = got || event.Type == watch.Bookmark
		}
		if got != wanted {
			t.Errorf("a client that wants bookmarks (%t) gets one: %t", wanted, got)
		}
	}
	refused := fmt.Errorf("no watch")
	if _, err := watchFor(t.Context(), apistorage.ListOptions{}, new(atomic.Int64), func(context.Context, apistorage.ListOptions) (watch.Interface, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Errorf("the error is %v", err)
	}
}
