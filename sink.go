package coppice

import (
	"slices"
	"sync"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// listeners are called with the namespace of each object that is gone.
type listeners struct {
	mu  sync.Mutex
	all []*func(namespace string) // guarded by mu; replaced, never changed
}

// add adds a listener, and returns a function that removes it.
func (l *listeners) add(listener func(namespace string)) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(slices.Clone(l.all), &listener)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(slices.Clone(l.all), func(other *func(string)) bool { return other == &listener })
	}
}

func (l *listeners) current() []*func(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// sink passes the feed's observations to the collector, and notifies the listeners of deletions.
type sink struct {
	feed.Sink
	view func(read func(g *ownership.Graph))
	gone *listeners
}

// Forget implements feed.Sink. The watch event contains only a UID; until it is forgotten, the
// graph knows its namespace.
func (s sink) Forget(uid ownership.UID, resourceVersion string) {
	listeners := s.gone.current()
	if len(listeners) == 0 {
		s.Sink.Forget(uid, resourceVersion)
		return
	}
	var object ownership.Object
	s.view(func(g *ownership.Graph) { object, _ = g.Object(uid) })
	s.Sink.Forget(uid, resourceVersion)
	if object.Namespace == "" {
		return
	}
	for _, listener := range listeners {
		(*listener)(object.Namespace)
	}
}
