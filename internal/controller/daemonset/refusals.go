package daemonset

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// refusals counts, for each set, how often deletions of its present pods were refused. It is safe for concurrent use.
type refusals struct {
	mu    sync.Mutex
	bySet map[cache.ObjectName]map[types.UID]int // guarded by mu
}

func (r *refusals) add(set cache.ObjectName, pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bySet[set] == nil {
		r.bySet[set] = map[types.UID]int{}
	}
	r.bySet[set][pod]++
}

// of returns the number of refusals for each pod of a set. It forgets pods that are not among the given ones; none are if
// the set is gone.
func (r *refusals) of(set cache.ObjectName, present map[types.UID]bool) map[types.UID]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.bySet[set], func(pod types.UID, _ int) bool {
		_, exists := present[pod]
		return !exists
	})
	if len(r.bySet[set]) == 0 {
		delete(r.bySet, set)
	}
	return maps.Clone(r.bySet[set])
}
