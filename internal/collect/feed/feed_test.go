package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var (
	pods        = kind{group: "", version: "v1", resource: "pods", kind: "Pod"}
	namespaces  = kind{group: "", version: "v1", resource: "namespaces", kind: "Namespace", cluster: true}
	events      = kind{group: "", version: "v1", resource: "events", kind: "Event"}
	deployments = kind{group: "apps", version: "v1", resource: "deployments", kind: "Deployment"}
	crds        = kind{group: "apiextensions.k8s.io", version: "v1", resource: "customresourcedefinitions", kind: "CustomResourceDefinition", cluster: true}
	widgets     = kind{group: "example.com", version: "v1", resource: "widgets", kind: "Widget"}

	podKind        = ownership.Kind{Kind: "Pod"}
	deploymentKind = ownership.Kind{Group: "apps", Kind: "Deployment"}
	widgetKind     = ownership.Kind{Group: "example.com", Kind: "Widget"}
)

// client-go limits the rate of errors with a global that remembers the time of the last one.
// Every bubble of fake time starts at the same time, so the last error may lie in the future,
// and the wait for it would be long.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// recorder is a sink that records its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
	last  map[ownership.UID]ownership.Object
	lists map[ownership.Kind][]string // the UIDs of the lists that are under way
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) Observe(o ownership.Object) {
	r.mu.Lock()
	if r.last == nil {
		r.last = make(map[ownership.UID]ownership.Object)
	}
	r.last[o.UID] = o
	r.mu.Unlock()
	r.note("observe %s %s", o.Kind, o.UID)
}
func (r *recorder) Forget(uid ownership.UID, rv string) { r.note("forget %s %s", uid, rv) }
func (r *recorder) StartList(k ownership.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lists == nil {
		r.lists = make(map[ownership.Kind][]string)
	}
	r.lists[k] = nil
}

func (r *recorder) Listed(k ownership.Kind, objects []ownership.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		r.lists[k] = append(r.lists[k], string(o.UID))
	}
}

func (r *recorder) EndList(k ownership.Kind) {
	r.mu.Lock()
	uids := r.lists[k]
	r.mu.Unlock()
	slices.Sort(uids)
	r.note("replace %s %v", k, uids)
}
func (r *recorder) NewEpoch()                                    { r.note("epoch") }
func (r *recorder) SetScope(k ownership.Kind, s ownership.Scope) { r.note("scope %s %d", k, s) }

// take returns the calls about a kind or an object since the last take.
func (r *recorder) take(of ...string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken []string
	r.calls = slices.DeleteFunc(r.calls, func(call string) bool {
		for _, word := range of {
			if slices.Contains(strings.Fields(call), word) {
				taken = append(taken, call)
				return true
			}
		}
		return false
	})
	return taken
}

// running starts a feed in a bubble of fake time, and stops it at the end of the test.
func running(t *testing.T, s *fakeServer, test func(f *feed.Feed, r *recorder)) {
	t.Helper()
	runningWith(t, s, feed.Config{}, test)
}

// runningWith is running with a configuration.
func runningWith(t *testing.T, s *fakeServer, config feed.Config, test func(f *feed.Feed, r *recorder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f, r := s.feed(t, config), &recorder{}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			f.Run(ctx, r)
		}()
		if err := f.WaitForInitialSync(ctx); err != nil {
			t.Errorf("initial sync: %v", err)
		}
		synctest.Wait()
		test(f, r)
		cancel()
		<-stopped
		// The bubble fails the test when a goroutine is left.
	})
}

func check(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func statusOf(t *testing.T, f *feed.Feed, k ownership.Kind) feed.MonitorStatus {
	t.Helper()
	for _, status := range f.Status() {
		if status.Kind == k {
			return status
		}
	}
	t.Fatalf("%s has no monitor", k)
	return feed.MonitorStatus{}
}

func watched(f *feed.Feed, k ownership.Kind) bool {
	return slices.ContainsFunc(f.Status(), func(s feed.MonitorStatus) bool { return s.Kind == k })
}

func TestFeedObservesListsAndEvents(t *testing.T) {
	for name, noStream := range map[string]bool{"list by watch": false, "plain list": true} {
		t.Run(name, func(t *testing.T) {
			s := newServer(pods, namespaces)
			s.noStream = noStream
			s.put("pods", metav1.ObjectMeta{UID: "a", Namespace: "ns", Name: "a"})
			running(t, s, func(f *feed.Feed, r *recorder) {
				check(t, "at start", r.take("Pod"), fmt.Sprintf("scope Pod %d", ownership.Namespaced), "replace Pod [a]")

				s.put("pods", metav1.ObjectMeta{UID: "b", Namespace: "ns", Name: "b"})
				s.put("pods", metav1.ObjectMeta{UID: "a", Namespace: "ns", Name: "a"})
				synctest.Wait()
				check(t, "events", r.take("Pod"), "observe Pod b", "observe Pod a")

				// R3: a DELETED event is evidence, with the revision of the deletion.
				s.remove("pods", "a")
				synctest.Wait()
				check(t, "deletion", r.take("a"), "forget a 104")
				if got := statusOf(t, f, podKind); got.State != feed.Synced || !got.Complete || got.Revision != "104" {
					t.Errorf("status = %+v, want synced at 104", got)
				}
			})
		})
	}
}

// R3: objects that are missing after a gap in the watch are reported by Replace, never by Forget. Observations are
// bounded for all metadata: from a list, and from a watch. An object whose name is too long is ignored; its DELETED
// event is still evidence (R3).
func TestObservationsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	excessive := metav1.ObjectMeta{Namespace: "a", Name: "p", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: types.UID(long)}}}
	for n := range 10_000 {
		excessive.Finalizers = append(excessive.Finalizers, fmt.Sprint("example.com/", n))
	}
	s := newServer(pods)
	excessive.UID = "listed"
	s.put("pods", excessive)
	s.put("pods", metav1.ObjectMeta{UID: "unnamed", Namespace: "a", Name: long})
	running(t, s, func(_ *feed.Feed, r *recorder) {
		watched := *excessive.DeepCopy()
		watched.UID = "watched"
		s.put("pods", watched)
		s.put("pods", metav1.ObjectMeta{UID: "unnamed", Namespace: "a", Name: long, Labels: map[string]string{"a": "b"}})
		s.remove("pods", "unnamed")
		synctest.Wait()
		want := []string{fmt.Sprintf("scope Pod %d", ownership.Namespaced), "replace Pod [listed]", "observe Pod watched", "forget unnamed 105"}
		if diff := cmp.Diff(want, r.take("Pod", "unnamed")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		o := r.last["watched"]
		size := 0
		for _, f := range o.Finalizers {
			size += len(f)
		}
		if size += len(o.Owners[0].UID); size > 4096 {
			t.Errorf("%d bytes of finalizers and owner", size)
		}
	})
}

func TestRelistReplaces(t *testing.T) {
	s := newServer(pods)
	s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
	s.put("pods", metav1.ObjectMeta{UID: "b", Name: "b"})
	running(t, s, func(_ *feed.Feed, r *recorder) {
		r.take("Pod")
		s.change(func() {
			s.refusal["pods"] = 410 // the revision that the watch asks for is compacted
			s.hangUp("pods")
			delete(s.objects["pods"], "a")
		})
		time.Sleep(50 * time.Millisecond)
		s.change(func() { delete(s.refusal, "pods") })
		time.Sleep(time.Minute)
		check(t, "after the gap", r.take("Pod", "forget"), "replace Pod [b]")
	})
}

func TestObservationHasTheMetadataOfTheObject(t *testing.T) {
	yes, no, now := true, false, metav1.NewTime(time.Unix(1, 0))
	meta := &metav1.PartialObjectMetadata{
		TypeMeta: partial,
		ObjectMeta: metav1.ObjectMeta{
			UID: "u", Namespace: "ns", Name: "n", ResourceVersion: "7", DeletionTimestamp: &now,
			Finalizers: []string{"foregroundDeletion", "example.com/own"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "o", Controller: &yes, BlockOwnerDeletion: &no},
				{APIVersion: "v1", Kind: "Node", Name: "m", UID: "m"},
			},
		},
	}
	want := ownership.Object{
		UID: "u", Kind: podKind, Namespace: "ns", Name: "n", ResourceVersion: "7", Phase: ownership.Foreground,
		Finalizers: []string{"foregroundDeletion", "example.com/own"},
		Owners: []ownership.Reference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "o", Controller: ownership.True, BlockOwnerDeletion: ownership.False},
			{APIVersion: "v1", Kind: "Node", Name: "m", UID: "m"},
		},
		Due: 1,
	}
	if diff := cmp.Diff(want, feed.ObjectOf(podKind, meta)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// DR-01: watched kinds, and kinds that are only known.
func TestWhatIsWatched(t *testing.T) {
	oldWidgets := widgets
	oldWidgets.version = "v1beta1"
	scales := kind{group: "example.com", version: "v1beta1", resource: "scales", kind: "Scale"}
	reviews := kind{group: "example.com", version: "v1", resource: "reviews", kind: "Review", verbs: []string{"create"}}
	stats := kind{group: "example.com", version: "v1", resource: "stats", kind: "Stat", verbs: []string{"get", "list"}}
	s := newServer(pods, events, widgets, oldWidgets, scales, reviews, stats)
	running(t, s, func(f *feed.Feed, r *recorder) {
		var got []string
		for _, status := range f.Status() {
			got = append(got, status.Resource.String())
		}
		check(t, "monitors", got,
			"/v1, Resource=pods",
			"example.com/v1beta1, Resource=scales", // no other version has it
			"example.com/v1, Resource=widgets",     // the preferred version
		)
		check(t, "scopes", r.take("scope"),
			"scope Event 1", "scope Pod 1", "scope Scale.example.com 1", "scope Stat.example.com 1", "scope Widget.example.com 1")
		if _, _, ok := f.Mapping(ownership.Kind{Group: "example.com", Kind: "Review"}); ok {
			t.Error("a kind without objects is mapped")
		}
		gvr, namespaced, ok := f.Mapping(widgetKind)
		if want := (schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}); gvr != want || !namespaced || !ok {
			t.Errorf("mapping = %v %v %v", gvr, namespaced, ok)
		}
	})
}

// Objects that are served in two groups have one monitor; both names lead to them.
func TestObjectsOfTwoNamesAreWatchedOnce(t *testing.T) {
	deployments := kind{group: "apps", version: "v1", resource: "deployments", kind: "Deployment"}
	older := kind{group: "extensions", version: "v1beta1", resource: "deployments", kind: "Deployment"}
	running(t, newServer(deployments, older), func(f *feed.Feed, _ *recorder) {
		var got []string
		for _, status := range f.Status() {
			got = append(got, status.Resource.String())
		}
		check(t, "monitors", got, "apps/v1, Resource=deployments")
		if gvr, _, ok := f.Mapping(ownership.Kind{Group: "extensions", Kind: "Deployment"}); gvr.Group != "extensions" || !ok {
			t.Errorf("mapping = %v %v", gvr, ok)
		}
	})
}

func TestIgnoreIsConfigurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := newServer(pods, events).feed(t, feed.Config{Ignore: []schema.GroupResource{{Resource: "pods"}}})
		go f.Run(ctx, &recorder{})
		if err := f.WaitForInitialSync(ctx); err != nil {
			t.Fatal(err)
		}
		if watched(f, podKind) || !watched(f, ownership.Kind{Kind: "Event"}) {
			t.Errorf("monitors = %+v, want events only", f.Status())
		}
	})
}

// CR-04: a kind that cannot be listed is named, and delays nothing else (DR-07).
func TestBrokenKindHoldsNothingElse(t *testing.T) {
	s := newServer(pods, widgets)
	s.refusal["widgets"] = 500
	s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
	running(t, s, func(f *feed.Feed, r *recorder) {
		check(t, "pods", r.take("Pod"), "scope Pod 1", "replace Pod [a]")
		status := statusOf(t, f, widgetKind)
		if status.State != feed.Failing || status.Complete || !apierrors.IsInternalError(status.Err) {
			t.Errorf("status = %+v, want failing with the server's error", status)
		}
		check(t, "widgets", r.take("Widget.example.com"), "scope Widget.example.com 1")

		s.put("widgets", metav1.ObjectMeta{UID: "w", Name: "w"})
		s.change(func() { delete(s.refusal, "widgets") })
		time.Sleep(time.Minute)
		check(t, "widgets, repaired", r.take("Widget.example.com"), "replace Widget.example.com [w]")
		if status := statusOf(t, f, widgetKind); status.State != feed.Synced || status.Err != nil {
			t.Errorf("status = %+v, want synced", status)
		}
	})
}

// A kind whose list a busy server refuses for a while (429) is read later, without a warning.
func TestBusyServerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		s := newServer(pods, widgets)
		s.refusal["widgets"] = http.StatusTooManyRequests
		s.put("widgets", metav1.ObjectMeta{UID: "w", Name: "w"})
		f, r := s.feed(t, feed.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}), &recorder{}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			f.Run(ctx, r)
		}()
		time.Sleep(2 * time.Second)
		s.change(func() { delete(s.refusal, "widgets") })
		if err := f.WaitForInitialSync(ctx); err != nil {
			t.Errorf("initial sync: %v", err)
		}
		synctest.Wait()
		check(t, "widgets", r.take("Widget.example.com"), "scope Widget.example.com 1", "replace Widget.example.com [w]")
		if status := statusOf(t, f, widgetKind); status.State != feed.Synced {
			t.Errorf("status = %+v, want synced", status)
		}
		cancel()
		<-stopped
		if text := log.String(); strings.Contains(text, "cannot be read") || strings.Contains(text, "level=DEBUG") {
			t.Errorf("log:\n%s", text)
		}
	})
}

// A kind that does not answer delays the start by 10 s, not for ever.
func TestInitialSyncIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newServer(pods, widgets)
		f := s.feed(t, feed.Config{})
		silent := make(chan struct{})
		defer close(silent)
		s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
		go f.Run(ctx, stuck{&recorder{}, silent})
		start := time.Now()
		if err := f.WaitForInitialSync(ctx); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 10*time.Second {
			t.Errorf("waited %v, want 10s", got)
		}
		if !f.Synced() {
			t.Error("Synced = false")
		}
	})
}

// stuck is a sink that blocks on the list of pods.
type stuck struct {
	feed.Sink
	until chan struct{}
}

func (s stuck) EndList(k ownership.Kind) {
	if k == podKind {
		<-s.until
	}
}

// L4: when nothing changes, the only requests are discovery twice a minute.
func TestQuietWhenNothingChanges(t *testing.T) {
	s := newServer(pods, crds)
	running(t, s, func(*feed.Feed, *recorder) {
		time.Sleep(10 * time.Second)
		s.change(func() { clear(s.requests) })
		time.Sleep(4 * time.Minute)
		s.change(func() {
			want := map[string]int{"/api": 8, "/apis": 8}
			if diff := cmp.Diff(want, s.requests); diff != "" {
				t.Errorf("requests in 4 minutes (-want +got):\n%s", diff)
			}
		})
	})
}
