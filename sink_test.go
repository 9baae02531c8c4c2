package coppice

import (
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// graphSink is a feed.Sink that has nothing but a graph.
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

// TestSinkTellsWhereSomethingIsGone has objects go: their namespaces are told of, and
// the graph hears of all of them.
func TestSinkTellsWhereSomethingIsGone(t *testing.T) {
	graph := ownership.New()
	var told []string
	s := sink{
		Sink:    graphSink{graph},
		view:    func(read func(g *ownership.Graph)) { read(graph) },
		changed: func(namespace string) { told = append(told, namespace) },
	}
	pod := ownership.Kind{Kind: "Pod"}
	s.SetScope(pod, ownership.Namespaced)
	s.Observe(ownership.Object{UID: "a", Kind: pod, Namespace: "shop", Name: "a", ResourceVersion: "1"})
	s.Observe(ownership.Object{UID: "b", Kind: pod, Namespace: "office", Name: "b", ResourceVersion: "2"})
	s.Observe(ownership.Object{UID: "node", Kind: ownership.Kind{Kind: "Node"}, Name: "node", ResourceVersion: "3"})
	for _, uid := range []ownership.UID{"a", "node", "nobody", "b"} {
		s.Forget(uid, "9")
	}
	if want := []string{"shop", "office"}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	if n := graph.Len(); n != 0 {
		t.Errorf("%d objects are left in the graph", n)
	}
}
