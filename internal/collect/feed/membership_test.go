package feed_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// CR-02, CR-03: a kind joins soon after its CustomResourceDefinition was created, although
// discovery lags; it leaves when it is gone, after its last events were delivered; and it joins
// again.
func TestKindJoinsLeavesAndJoinsAgain(t *testing.T) {
	s := newServer(pods, crds)
	running(t, s, func(f *feed.Feed, r *recorder) {
		time.Sleep(10 * time.Second) // past what the first list of definitions has set off
		synctest.Wait()
		before := goroutines()
		if len(before) == 0 {
			t.Fatal("no goroutines of the feed are found")
		}

		for round := range 3 {
			uid := fmt.Sprint("w", round)
			s.put("customresourcedefinitions", metav1.ObjectMeta{UID: "crd", Name: "widgets.example.com"})
			time.Sleep(200 * time.Millisecond) // discovery lags
			s.serve(widgets)
			s.put("widgets", metav1.ObjectMeta{UID: "first", Name: "first"})
			time.Sleep(800 * time.Millisecond)
			check(t, "joined", r.take("Widget.example.com"), "scope Widget.example.com 1", "replace Widget.example.com [first]")

			s.put("widgets", metav1.ObjectMeta{UID: "last", Name: uid})
			// The definition goes: its instances are deleted first, then
			// discovery drops the kind, then its requests are refused.
			s.remove("widgets", "last")
			s.remove("customresourcedefinitions", "crd")
			s.withdraw("widgets")
			time.Sleep(10 * time.Second)
			got := r.take("Widget.example.com", "last")
			if len(got) != 4 || !strings.HasPrefix(got[1], "forget last") {
				t.Fatalf("leaving: %v", got)
			}
			check(t, "left", got[2:], "replace Widget.example.com []", "scope Widget.example.com 0")
			if watched(f, widgetKind) {
				t.Error("monitor is left")
			}
			if _, _, ok := f.Mapping(widgetKind); ok {
				t.Error("mapping is left")
			}
			synctest.Wait()
			if after := goroutines(); len(after) != len(before) {
				t.Errorf("round %d: %d goroutines, %d before:\n%s", round, len(after), len(before), strings.Join(after, "\n\n"))
			}
		}
	})
}

// H10: after a kind was added and removed ten times, an object of it made ten observations. Here
// it makes one, and the removed kind has left nothing behind.
func TestH10KindsThatComeAndGoLeaveNothing(t *testing.T) {
	s := newServer(pods, crds)
	running(t, s, func(f *feed.Feed, r *recorder) {
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := goroutines()
		for round := range 10 {
			s.put("customresourcedefinitions", metav1.ObjectMeta{UID: "crd", Name: "widgets.example.com"})
			s.serve(widgets)
			time.Sleep(time.Second)
			if !watched(f, widgetKind) {
				t.Fatalf("round %d: not watched a second after it was made", round)
			}
			s.remove("customresourcedefinitions", "crd")
			s.withdraw("widgets")
			time.Sleep(10 * time.Second)
			if got := len(f.Status()); got != 2 {
				t.Fatalf("round %d: %d monitors, want 2", round, got)
			}
		}
		synctest.Wait()
		if after := goroutines(); len(after) != len(before) {
			t.Errorf("%d goroutines, %d before", len(after), len(before))
		}
		s.put("customresourcedefinitions", metav1.ObjectMeta{UID: "crd", Name: "widgets.example.com"})
		s.serve(widgets)
		time.Sleep(time.Second)
		r.take("Widget.example.com")
		s.put("widgets", metav1.ObjectMeta{UID: "w", Name: "w"})
		synctest.Wait()
		check(t, "observations", r.take("Widget.example.com"), "observe Widget.example.com w")
	})
}

// DR-02..08: a kind that cannot be read joins, fails by itself, leaves, and comes
// back; a group that fails keeps the monitors that had synced.
func TestUnreadableKindComesAndGoes(t *testing.T) {
	s := newServer(pods, deployments)
	running(t, s, func(f *feed.Feed, r *recorder) {
		s.change(func() { s.refusal["widgets"] = 500 })
		s.serve(widgets)
		time.Sleep(time.Minute)
		if got := statusOf(t, f, widgetKind); got.State != feed.Failing || got.Complete || got.Err == nil {
			t.Errorf("status = %+v, want failing, with the error", got)
		}
		s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
		synctest.Wait()
		check(t, "another kind meanwhile", r.take("a"), "observe Pod a")

		s.change(func() { s.stale["apps"] = true; s.stale["example.com"] = true })
		time.Sleep(time.Minute)
		if !watched(f, widgetKind) || statusOf(t, f, deploymentKind).State != feed.Synced {
			t.Errorf("status = %+v, want both groups as they were", f.Status())
		}
		s.put("deployments", metav1.ObjectMeta{UID: "d", Name: "d"})
		synctest.Wait()
		check(t, "the failed group's events", r.take("d"), "observe Deployment.apps d")

		s.change(func() { clear(s.stale); delete(s.refusal, "widgets") })
		s.withdraw("widgets")
		time.Sleep(2 * time.Minute)
		if watched(f, widgetKind) {
			t.Error("a kind that is gone is watched")
		}
		s.serve(widgets)
		time.Sleep(time.Minute)
		if got := statusOf(t, f, widgetKind); got.State != feed.Synced || got.Err != nil {
			t.Errorf("status = %+v, want synced", got)
		}
	})
}

// A kind whose requests are refused before discovery drops it is no trouble. It is one if discovery goes on to include
// it, and is logged once; another failure is logged at once.
func TestRefusedKindIsLoggedIfDiscoveryIncludesIt(t *testing.T) {
	for name, test := range map[string]struct {
		refusal int
		after   time.Duration // until discovery drops the kind
		want    int
	}{
		"not found, and dropped":       {404, 10 * time.Second, 0},
		"not allowed, and dropped":     {405, 10 * time.Second, 0},
		"not found, but included":      {404, 5 * time.Minute, 1},
		"an error, and dropped":        {500, 10 * time.Second, 1},
		"an error for a long time":     {500, 5 * time.Minute, 1},
		"readable until it is dropped": {0, 10 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			s := newServer(pods, widgets)
			runningWith(t, s, feed.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(f *feed.Feed, _ *recorder) {
				s.change(func() {
					if test.refusal != 0 {
						s.refusal["widgets"] = test.refusal
					}
					s.hangUp("widgets")
				})
				time.Sleep(test.after)
				s.withdraw("widgets")
				time.Sleep(2 * time.Minute)
				if watched(f, widgetKind) {
					t.Error("it is still watched")
				}
			})
			if lines := strings.Count(log.String(), "kind cannot be read"); lines != test.want {
				t.Errorf("%d lines, want %d:\n%s", lines, test.want, log.String())
			}
		})
	}
}

func survey(t *testing.T, f *feed.Feed) feed.Watched {
	t.Helper()
	watched, err := f.Survey(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return watched
}

// R15: Survey includes a kind that is served, even if discovery would not be read for a long
// time.
func TestR15_SurveyIsNotOlderThanTheQuestion(t *testing.T) {
	s := newServer(pods, namespaces)
	running(t, s, func(f *feed.Feed, _ *recorder) {
		time.Sleep(10 * time.Second)
		s.serve(kind{group: "example.com", version: "v1", resource: "things", kind: "Thing"})
		want := feed.Watched{
			Namespaced: []ownership.Kind{podKind, {Group: "example.com", Kind: "Thing"}},
			Cluster:    []ownership.Kind{{Kind: "Namespace"}},
		}
		if diff := cmp.Diff(want, survey(t, f)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		s.change(func() { s.down = true })
		if _, err := f.Survey(context.Background()); err == nil {
			t.Error("a survey succeeded although discovery fails")
		}
		s.change(func() { s.down = false })
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := f.Survey(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error = %v, want that the call ends", err)
		}
	})
}

// R15: the kinds to read before a finalizer is removed.
func TestR15_WatchedNamesWhatCouldHoldDependents(t *testing.T) {
	review := kind{group: "example.com", version: "v1", resource: "reviews", kind: "Review", verbs: []string{"create"}}
	s := newServer(pods, namespaces, events, review, kind{group: "late.example.com", version: "v1", resource: "things", kind: "Thing"})
	s.stale["late.example.com"] = true
	running(t, s, func(f *feed.Feed, _ *recorder) {
		want := feed.Watched{
			Namespaced: []ownership.Kind{podKind}, Cluster: []ownership.Kind{{Kind: "Namespace"}},
			Unknown: []string{"late.example.com/v1"},
		}
		if diff := cmp.Diff(want, survey(t, f)); diff != "" {
			t.Errorf("while a group has never been read (-want +got):\n%s", diff)
		}
		unanswered := []schema.GroupVersion{{Group: "late.example.com", Version: "v1"}}
		if got := f.Unanswered(); !slices.Equal(got, unanswered) {
			t.Errorf("discovery does not answer for %v, want %v", got, unanswered)
		}
		s.change(func() { delete(s.stale, "late.example.com") })
		time.Sleep(time.Minute)
		if got := f.Unanswered(); len(got) > 0 {
			t.Errorf("discovery does not answer for %v once it does", got)
		}
		want.Namespaced, want.Unknown = append(want.Namespaced, ownership.Kind{Group: "late.example.com", Kind: "Thing"}), nil
		if diff := cmp.Diff(want, survey(t, f)); diff != "" {
			t.Errorf("once it was read (-want +got):\n%s", diff)
		}
		// Its known kinds stay: they have to be read, and can be named.
		s.change(func() { s.stale["late.example.com"] = true; s.refusal["things"] = 503 })
		time.Sleep(time.Minute)
		if diff := cmp.Diff(want, survey(t, f)); diff != "" {
			t.Errorf("when it fails again (-want +got):\n%s", diff)
		}
		if got := f.Unanswered(); !slices.Equal(got, unanswered) {
			t.Errorf("discovery does not answer for %v when it fails again, want %v", got, unanswered)
		}
		s.withdraw("things")
		s.change(func() { delete(s.refusal, "things") })
		time.Sleep(2 * time.Minute)
		want.Namespaced = want.Namespaced[:1]
		if diff := cmp.Diff(want, survey(t, f)); diff != "" {
			t.Errorf("when it is gone (-want +got):\n%s", diff)
		}
	})
}

// Reached follows the watch, and is empty for a kind that was never listed.
func TestR15_ReachedFollowsTheWatch(t *testing.T) {
	s := newServer(pods, widgets)
	s.refusal["widgets"] = 500
	running(t, s, func(f *feed.Feed, _ *recorder) {
		for _, kind := range []ownership.Kind{widgetKind, {Kind: "Never"}} {
			if got := f.Reached(kind); got != "" {
				t.Errorf("reached %q of %s, want nothing", got, kind)
			}
		}
		s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
		synctest.Wait()
		if got := f.Reached(podKind); got != "101" {
			t.Errorf("reached %q, want 101", got)
		}
	})
}

// goroutines returns the stacks of the feed's goroutines.
func goroutines() []string {
	buffer := make([]byte, 1<<20)
	all := strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n")
	return slices.DeleteFunc(all, func(stack string) bool {
		return !strings.Contains(stack, "k8s.io/client-go") && !strings.Contains(stack, "feed.(*")
	})
}

// A kind that left discovery is watched for as long as the server serves the watch.
func TestKindOutOfDiscoveryIsStillWatched(t *testing.T) {
	s := newServer(pods, widgets)
	s.put("widgets", metav1.ObjectMeta{UID: "w", Name: "w"})
	running(t, s, func(f *feed.Feed, r *recorder) {
		r.take("Widget.example.com")
		s.change(func() {
			s.served = slices.DeleteFunc(s.served, func(k kind) bool { return k.resource == "widgets" })
		})
		time.Sleep(time.Minute)
		if status := statusOf(t, f, widgetKind); !status.Leaving {
			t.Errorf("status = %+v, want leaving", status)
		}
		if _, _, ok := f.Mapping(widgetKind); !ok {
			t.Error("mapping is gone before the monitor")
		}
		s.remove("widgets", "w")
		synctest.Wait()
		check(t, "last event", r.take("w"), "forget w 102")

		// And back in discovery, nothing was lost.
		s.serve(widgets)
		time.Sleep(time.Minute)
		if status := statusOf(t, f, widgetKind); status.Leaving || status.State != feed.Synced {
			t.Errorf("status = %+v, want synced", status)
		}
		check(t, "back", r.take("Widget.example.com"))
	})
}

// DR-02..08: groups that discovery cannot read at the moment stay unchanged.
func TestDiscoveryFailureKeepsMonitors(t *testing.T) {
	s := newServer(pods, deployments, widgets)
	running(t, s, func(f *feed.Feed, r *recorder) {
		before := len(f.Status())
		r.take("Pod", "Widget.example.com", "Deployment.apps")
		failures := map[string]func(bool){
			"all":       func(failing bool) { s.down = failing },
			"one group": func(failing bool) { s.stale["example.com"] = failing },
			"nothing": func(failing bool) {
				if failing {
					s.served = nil
				} else {
					s.served = []kind{pods, deployments, widgets}
				}
			},
		}
		for _, name := range slices.Sorted(maps.Keys(failures)) {
			s.change(func() { failures[name](true) })
			time.Sleep(2 * time.Minute)
			if got := len(f.Status()); got != before {
				t.Errorf("%s fails: %d monitors, want %d", name, got, before)
			}
			if _, _, ok := f.Mapping(widgetKind); !ok {
				t.Errorf("%s fails: mapping is lost", name)
			}
			s.change(func() { failures[name](false) })
			time.Sleep(2 * time.Minute)
		}
		check(t, "scopes", r.take("scope"))
	})
}

// GB-07.
func TestFirstDiscoveryIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newServer(pods)
		s.down = true
		f := s.feed(t, feed.Config{})
		go f.Run(ctx, &recorder{})
		early, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		if err := f.WaitForInitialSync(early); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("initial sync without discovery = %v", err)
		}
		s.change(func() { s.down = false })
		if err := f.WaitForInitialSync(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status := statusOf(t, f, podKind); status.State != feed.Synced {
			t.Errorf("status = %+v, want synced", status)
		}
	})
}

// When a version is no longer served, the watch moves to another one; the objects
// are the same, so they do not vanish in between.
func TestObjectsStayWhenTheWatchMovesToAnotherVersion(t *testing.T) {
	oldWidgets := widgets
	oldWidgets.version = "v1beta1"
	s := newServer(pods, oldWidgets)
	s.put("widgets", metav1.ObjectMeta{UID: "w", Name: "w"})
	running(t, s, func(f *feed.Feed, r *recorder) {
		r.take("Widget.example.com")
		s.change(func() { s.served = []kind{pods, widgets, oldWidgets} })
		time.Sleep(time.Minute)
		if got := statusOf(t, f, widgetKind).Resource.Version; got != "v1beta1" {
			t.Errorf("version = %s; want the one in use while it is served", got)
		}
		s.change(func() { s.served = []kind{pods, widgets} })
		time.Sleep(time.Minute)
		if got := statusOf(t, f, widgetKind).Resource.Version; got != "v1" {
			t.Errorf("version = %s, want v1", got)
		}
		check(t, "sink", r.take("Widget.example.com"), "replace Widget.example.com [w]")
	})
}
