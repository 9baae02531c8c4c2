package collector

import (
	"slices"
	"sync"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// listeners are called with each event of one sort.
type listeners[T any] struct {
	mu  sync.Mutex
	all []*func(T) // guarded by mu; replaced, never changed
}

// OnRemoval calls a function with the namespace of each object whose removal is observed, until stop is called. It is
// not called for cluster-scoped objects. It must not block.
func (c *Collector) OnRemoval(listener func(namespace string)) (stop func()) {
	return c.state.removals.add(listener)
}

// OnRefuserChange calls a function with the sorts of refusers that an observed change concerns (R31), until stop is
// called. It must not block.
func (c *Collector) OnRefuserChange(listener func(by []refusal.By)) (stop func()) {
	return c.state.changes.add(listener)
}

func (l *listeners[T]) add(listener func(T)) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(slices.Clone(l.all), &listener)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(slices.Clone(l.all), func(other *func(T)) bool { return other == &listener })
	}
}

// call calls the listeners, without a lock.
func (l *listeners[T]) call(event T) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, listener := range all {
		(*listener)(event)
	}
}
