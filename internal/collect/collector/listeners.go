package collector

import (
	"slices"
	"sync"
)

// listeners are called with the namespace of each object that is gone.
type listeners struct {
	mu  sync.Mutex
	all []*func(namespace string) // guarded by mu; replaced, never changed
}

// OnRemoval calls a function with the namespace of each object whose removal is observed, until stop is called. It is
// not called for cluster-scoped objects. It must not block.
func (c *Collector) OnRemoval(listener func(namespace string)) (stop func()) {
	return c.state.removals.add(listener)
}

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

// call calls the listeners, without a lock.
func (l *listeners) call(namespace string) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, listener := range all {
		(*listener)(namespace)
	}
}
