package coppicetest_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/coppice-dev/coppice/coppicetest"
)

// TestResetLeavesWhatWasKept checks that Reset removes what is held by a finalizer, leaves the definitions of the start
// and what was kept, and begins a new mark.
func TestResetLeavesWhatWasKept(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t, coppicetest.WithCRDBytes([]byte(widgets)))
	s := newServer(t, plane)
	s.configMap("kept", "")
	plane.Keep(t)
	for range 3 {
		s.create("/apis/example.com/v1/namespaces/default/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
		owner := s.configMap("owner", "")
		s.configMap("held", `,"finalizers":["example.com/cleanup"]`, owner)
		s.delete(configMaps+"/owner", "")
		s.delete(configMaps+"/kept", "")
		if found := plane.Leaks(t); len(found) == 0 {
			t.Error("an object that does not go is no leak")
		}
		plane.Reset(t)
		if deletions := plane.Deletions(t); len(deletions) > 0 {
			t.Errorf("deletions after the reset: %v", deletions)
		}
		plane.NoLeaks(t)
		for path, want := range map[string]int{
			configMaps + "/held": http.StatusNotFound, configMaps + "/owner": http.StatusNotFound, configMaps + "/kept": http.StatusOK,
			"/apis/example.com/v1/namespaces/default/widgets/w": http.StatusNotFound, "/apis/example.com/v1/widgets": http.StatusOK,
		} {
			if code, _, _ := s.persist(http.MethodGet, path, ""); code != want {
				t.Errorf("%s: %d, want %d", path, code, want)
			}
		}
	}
}

// TestSharedPlanesAreAsNew checks that tests that run at the same time have planes of their own, and that a test has a
// plane that another one has left, without its objects and its faults.
func TestSharedPlanesAreAsNew(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	planes := map[*coppicetest.Plane]int{} // guarded by mu; the number of tests that use each
	lent := 0                              // guarded by mu
	t.Run("group", func(t *testing.T) {
		for n := range 12 {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				plane := coppicetest.Shared(t, coppicetest.WithoutNamespaceController())
				mu.Lock()
				planes[plane]++
				lent++
				if planes[plane] > 1 {
					t.Error("two tests have the same plane")
				}
				mu.Unlock()
				t.Cleanup(func() {
					mu.Lock()
					defer mu.Unlock()
					planes[plane]--
				})
				s := newServer(t, plane)
				s.configMap("mine", `,"finalizers":["example.com/cleanup"]`)
				s.delete(configMaps+"/mine", "")
				plane.Faults(t, "refused-write rate=100%")
			})
		}
	})
	if len(planes) >= lent {
		t.Errorf("%d tests had %d planes", lent, len(planes))
	}
	for plane := range planes {
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Run("after they were closed", func(t *testing.T) {
		plane := coppicetest.Shared(t, coppicetest.WithoutNamespaceController())
		newServer(t, plane).configMap("mine", "")
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestKeptPlanesAreNotLentAgain checks that a test has a plane without the objects that another one has kept.
func TestKeptPlanesAreNotLentAgain(t *testing.T) {
	t.Parallel()
	options := []coppicetest.Option{coppicetest.WithoutNamespaceController(), coppicetest.WithArguments("--log-level=error")} // of no other test
	var first, last *coppicetest.Plane
	t.Run("keeps", func(t *testing.T) {
		first = coppicetest.Shared(t, options...)
		newServer(t, first).configMap("mine", "")
		first.Keep(t)
	})
	t.Run("borrows", func(t *testing.T) {
		last = coppicetest.Shared(t, options...)
		if code, _, _ := newServer(t, last).persist(http.MethodGet, configMaps+"/mine", ""); code != http.StatusNotFound {
			t.Errorf("an object that another test has kept: %d, want 404", code)
		}
	})
	if first == last {
		t.Error("the plane was lent again")
	}
	if err := last.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkShared lends a plane whose last test has made 100 objects.
func BenchmarkShared(b *testing.B) {
	plane, err := coppicetest.Open(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	defer plane.Close()
	for _, n := range []int{0, 100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newServer(b, plane)
			for range b.N {
				b.StopTimer()
				for i := range n {
					s.configMap(fmt.Sprintf("m-%d", i), "")
				}
				b.StartTimer()
				plane.Reset(b)
			}
		})
	}
}
