package storage

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The past is dropped once after each burst, up to the start of the quiet time.
func TestQuietAfterABurst(t *testing.T) {
	q := quiet{}
	revision, began := int64(5_000_000), int64(0)
	for _, phase := range []struct {
		what  string
		rate  int64 // writes between two looks
		looks int
		drops bool // at the last look
	}{
		{"the start", 0, quietLooks + 5, false},
		{"some writes all the time", quietWrites, 3 * burstWrites / quietWrites, false},
		{"many writes", burstWrites / 2, 1, false},
		{"a pause", 0, quietLooks + 1, false},
		{"as many again", burstWrites / 2, 1, false},
		{"too short a pause", 0, quietLooks - 1, false},
		{"a few too many", quietWrites + 1, 1, false},
		{"quiet", 3, quietLooks, true},
		{"still quiet", 3, 100, false},
		{"a burst", burstWrites, 2, false},
		{"hardly anything", quietWrites, quietLooks, true},
	} {
		for i := range phase.looks {
			revision += phase.rate
			if i == 0 {
				began = revision
			}
			want := int64(0)
			if phase.drops && i == phase.looks-1 {
				want = began
			}
			if got := q.observe(revision); got != want {
				t.Errorf("%s, look %d: dropped until %d, want %d", phase.what, i+1, got, want)
			}
		}
	}
}

// The past is dropped in etcd and in the windows of the caches. Watches continue.
func TestPastIsDropped(t *testing.T) {
	s := open(t)
	contents := s.configMapStorage(t)
	watchFrom := func(revision int64) (events watch.Interface) {
		eventually.Succeeds(t, func() (err error) { // it fails until the cache is ready
			options := apistorage.ListOptions{ResourceVersion: fmt.Sprint(revision), Recursive: true, Predicate: apistorage.Everything}
			events, err = contents.Watch(t.Context(), contents.key("team", ""), options)
			return err
		})
		t.Cleanup(events.Stop)
		return events
	}
	began, err := s.Revision(t.Context())
	must(t, err)
	events := watchFrom(began)
	must(t, contents.create("team", "kept"))
	next := func() string {
		event := <-events.ResultChan()
		if shared, ok := event.Object.(apiruntime.CacheableObject); ok {
			event.Object = shared.GetObject()
		}
		object, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("%s %v", event.Type, event.Object)
		}
		return fmt.Sprint(event.Type, " ", object.Name)
	}
	next()
	for i := range emptyFrom / 2 {
		must(t, contents.create("team", fmt.Sprint(i)))
		next()
		must(t, contents.remove("team", fmt.Sprint(i)))
		next()
	}
	before, err := s.Revision(t.Context())
	must(t, err)
	for range 2 { // the second time does nothing
		must(t, s.dropUntil(t.Context(), before))
	}
	if _, err := s.Follower().ReadPage(t.Context(), s.Prefix(), "", before-1, 1); !errors.Is(err, ErrCompacted) {
		t.Errorf("a read at a revision of the past: %v", err)
	}
	eventually.Succeeds(t, func() error {
		if event := <-watchFrom(before - 2).ResultChan(); !isExpired(event) {
			return fmt.Errorf("a watch from the past gets %s", event.Type)
		}
		return nil
	})
	must(t, contents.create("team", "new"))
	if got, want := next(), fmt.Sprint(watch.Added, " new"); got != want {
		t.Errorf("the watch gets %s, want %s", got, want)
	}
	var list corev1.ConfigMapList
	must(t, contents.GetList(t.Context(), contents.key("team", ""), apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything}, &list))
	if len(list.Items) != 2 {
		t.Errorf("there are %d objects, want 2", len(list.Items))
	}
}
