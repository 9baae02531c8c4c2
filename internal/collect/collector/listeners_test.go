package collector_test

import (
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// TestListenersGetNamespacesOfRemovedObjects deletes objects: listeners are called with their namespaces until they are
// removed, and the graph receives all deletions.
func TestListenersGetNamespacesOfRemovedObjects(t *testing.T) {
	w := newFixtureWith(t, collector.Config{})
	var got []string
	stop := w.c.OnRemoval(func(namespace string) { got = append(got, namespace) })
	other := 0
	defer w.c.OnRemoval(func(string) { other++ })()
	s, pod := w.c.Sink(), ownership.Kind{Kind: "Pod"}
	s.SetScope(pod, ownership.Namespaced)
	s.Observe(ownership.Object{UID: "a", Kind: pod, Namespace: "shop", Name: "a", ResourceVersion: "1"})
	s.Observe(ownership.Object{UID: "b", Kind: pod, Namespace: "office", Name: "b", ResourceVersion: "2"})
	s.Observe(ownership.Object{UID: "node", Kind: ownership.Kind{Kind: "Node"}, Name: "node", ResourceVersion: "3"})
	s.Observe(ownership.Object{UID: "c", Kind: pod, Namespace: "shop", Name: "c", ResourceVersion: "4"})
	for _, uid := range []ownership.UID{"a", "node", "unknown", "b"} {
		s.Forget(uid, "9")
	}
	stop()
	s.Forget("c", "9")
	if want := []string{"shop", "office"}; !slices.Equal(got, want) {
		t.Errorf("the listener got %v, want %v", got, want)
	}
	if other != 3 {
		t.Errorf("the other listener was called %d times, want 3", other)
	}
	if n := w.c.Status().Graph.Objects; n != 0 {
		t.Errorf("%d objects are left in the graph", n)
	}
}
