package storage

import (
	"context"
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

// A client that takes nothing while 500 objects change gets all changes afterwards, in order, however the
// watch began. The cache has ended the watch meanwhile.
func TestClientBehindIsNotEnded(t *testing.T) {
	const first, last = 2, 502
	announceEtcdFeatures(t.Context())
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
			events, err := watchFor(t.Context(), opts, func(ctx context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
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

// initialState reads the first events of a watch: a state, and the bookmark or the change that shows that
// the state is complete. It returns the revision of the last.
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

// A client that has fallen behind the window of the cache gets the error that has it list again.
func TestClientBehindTheWindowListsAgain(t *testing.T) {
	const last = 4 * windowChanges
	source := newSource()
	cached := source.cache(t, &window{newFunc: newConfigMap})
	opts := apistorage.ListOptions{ResourceVersion: "1", Recursive: true, Predicate: apistorage.Everything}
	events, err := watchFor(t.Context(), opts, func(ctx context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
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

// A watch ends when its client takes nothing, and not before. It holds `ahead` events, and takes no more
// from the cache than these and one.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10 * ahead
		source := watch.NewFakeWithChanSize(n, false)
		events := endIfSlow(t.Context(), source)
		for revision := 1; revision <= n; revision++ {
			source.Add(configMap("a", revision))
		}
		time.Sleep(clientPatience - 1)
		if held := n - len(source.ResultChan()); held != ahead+1 {
			t.Errorf("%d events are held for a client that takes none, want %d", held, ahead+1)
		}
		if event := <-events.ResultChan(); at(event) != 1 {
			t.Errorf("a client that is slow gets %v", event)
		}
		time.Sleep(clientPatience + 1)
		synctest.Wait()
		rest := 0
		for range events.ResultChan() {
			rest++
		}
		if rest != ahead || !source.IsStopped() {
			t.Errorf("%d events are left, want %d; the watch of etcd was ended: %t", rest, ahead, source.IsStopped())
		}
	})
}

// A watch that the server ends is opened anew after the last event, and only if all events before it
// were passed on. It ends if it cannot be opened, if nothing comes time and again, and with its client.
func TestResumption(t *testing.T) {
	added := watch.Event{Type: watch.Added, Object: configMap("a", 8)}
	modified := watch.Event{Type: watch.Modified, Object: configMap("a", 9)}
	mark := watch.Event{Type: watch.Bookmark, Object: configMap("", 11)}
	failed := watch.Event{Type: watch.Error, Object: &metav1.Status{}}
	state := apistorage.ListOptions{SendInitialEvents: new(true), ResourceVersion: "3"}
	endless := make([][]watch.Event, 2*idleResumptions)
	for name, c := range map[string]struct {
		opts    apistorage.ListOptions
		events  [][]watch.Event // of each watch that is opened; then no more can be opened
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
				events, err := watchFor(t.Context(), c.opts, func(_ context.Context, opts apistorage.ListOptions) (watch.Interface, error) {
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

// at returns the revision of an event's object, which may be one that many watches share.
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

// A client that stops its watch ends the watch of the cache, also while an event waits for the client.
func TestStoppedClientWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := watch.NewFakeWithChanSize(2*ahead, false)
		opened := 0
		opts := apistorage.ListOptions{ResourceVersion: "1"}
		events, err := watchFor(t.Context(), opts, func(context.Context, apistorage.ListOptions) (watch.Interface, error) {
			opened++
			return source, nil
		})
		must(t, err)
		for revision := range 2 * ahead {
			source.Modify(configMap("a", revision+2))
		}
		synctest.Wait()
		events.Stop()
		synctest.Wait()
		if !source.IsStopped() || opened != 1 {
			t.Errorf("the watch of the cache was ended: %t; %d watches were opened", source.IsStopped(), opened)
		}
	})
}

// A client that wants no bookmarks gets none. A watch that cannot be opened has an error.
func TestClientWatchWithoutBookmarks(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		opts := apistorage.ListOptions{ResourceVersion: "1"}
		opts.Predicate.AllowWatchBookmarks = wanted
		w := newClientWatch(t.Context(), opts.Predicate.AllowWatchBookmarks)
		source := endedAfter([]watch.Event{{Type: watch.Bookmark, Object: &corev1.ConfigMap{}}})
		if !w.drain(source) {
			t.Error("the server has ended the watch, and not the client")
		}
		if got := len(w.results) == 1; got != wanted {
			t.Errorf("a client that wants bookmarks (%t) gets one: %t", wanted, got)
		}
	}
	refused := fmt.Errorf("no watch")
	if _, err := watchFor(t.Context(), apistorage.ListOptions{}, func(context.Context, apistorage.ListOptions) (watch.Interface, error) { return nil, refused }); err != refused { //nolint:errorlint // the same one
		t.Errorf("the error is %v", err)
	}
}
