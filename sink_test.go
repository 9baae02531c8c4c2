package coppice

import (
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// graphSink is a feed.Sink that only maintains a graph.
type graphSink struct{ *ownership.Graph }

func (s graphSink) Observe(o ownership.Object) { s.Graph.Observe(o) }
func (s graphSink) Forget(uid ownership.UID, resourceVersion string) {
	s.Graph.Forget(uid, resourceVersion)
}

func (s graphSink) Replace(kind ownership.Kind, objects []ownership.Object) {
	s.Graph.Replace(kind, objects)
}

func (s graphSink) SetScope(kind ownership.Kind, scope ownership.Scope) {
	s.Graph.SetScope(kind, scope)
}
func (s graphSink) NewEpoch() { s.Graph.NewEpoch() }

// TestSinkTellsListeners deletes objects: listeners are called with their namespaces until they are
// removed, and the graph receives all deletions.
func TestSinkTellsListeners(t *testing.T) {
	graph := ownership.New()
	var told []string
	s := sink{Sink: graphSink{graph}, view: func(read func(g *ownership.Graph)) { read(graph) }, gone: &listeners{}}
	remove := s.gone.add(func(namespace string) { told = append(told, namespace) })
	other := 0
	defer s.gone.add(func(string) { other++ })()
	pod := ownership.Kind{Kind: "Pod"}
	s.SetScope(pod, ownership.Namespaced)
	s.Observe(ownership.Object{UID: "a", Kind: pod, Namespace: "shop", Name: "a", ResourceVersion: "1"})
	s.Observe(ownership.Object{UID: "b", Kind: pod, Namespace: "office", Name: "b", ResourceVersion: "2"})
	s.Observe(ownership.Object{UID: "node", Kind: ownership.Kind{Kind: "Node"}, Name: "node", ResourceVersion: "3"})
	s.Observe(ownership.Object{UID: "c", Kind: pod, Namespace: "shop", Name: "c", ResourceVersion: "4"})
	for _, uid := range []ownership.UID{"a", "node", "unknown", "b"} {
		s.Forget(uid, "9")
	}
	remove()
	s.Forget("c", "9")
	if want := []string{"shop", "office"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if other != 3 {
		t.Errorf("the other listener was told %d times, want 3", other)
	}
	if n := graph.Len(); n != 0 {
		t.Errorf("%d objects are left in the graph", n)
	}
}
