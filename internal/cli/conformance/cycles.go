package conformance

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Owners in cycles.
var cycles = []Check{
	{"CY-01 three objects that block each other are deleted", "R10 L2", Collector, func(w *probe.Space) {
		ring := ring(w, 3)
		w.Stay(ring...)
		w.Remove(ring[0], probe.Foreground)
		w.EventuallyGone(ring...)
	}},
	{"CY-02 orphaning in a cycle keeps the others", "R13", Collector, func(w *probe.Space) {
		ring := ring(w, 3)
		w.Settle(probe.ConfigMaps)
		w.Remove(ring[0], probe.Orphan)
		w.EventuallyGone(ring[0])
		w.EventuallyOwned(ring[1])
		w.Stay(ring[1:]...)
	}},
	{"CY-02 a solid owner outside of a cycle keeps its dependent and the dependents of that", "R9 R10", Collector, func(w *probe.Space) {
		outside := w.Create(probe.ConfigMaps, "outside")
		ring := ring(w, 3)
		w.SetOwners(ring[1], probe.Blocking(ring[0]), probe.Ref(outside))
		w.Settle(probe.ConfigMaps)
		w.Remove(ring[0], probe.Foreground)
		w.EventuallyGone(ring[0])
		w.EventuallyOwned(ring[1], probe.Ref(outside))
		w.Stay(outside, ring[1], ring[2])
	}},
	{"CY-02 an owner in another cycle is solid while that cycle lives", "R7 R10", Collector, func(w *probe.Space) {
		ring := ring(w, 3)
		other := w.Create(probe.ConfigMaps, "other", probe.OwnedBy(probe.Blocking(ring[0])))
		w.SetOwners(ring[0], probe.Blocking(ring[2]), probe.Blocking(other))
		w.Settle(probe.ConfigMaps)
		w.Remove(ring[1], probe.Foreground)
		w.EventuallyGone(ring[1], ring[2])
		w.EventuallyOwned(ring[0], probe.Blocking(other))
		w.Stay(ring[0], other)
		w.Remove(other, probe.Foreground)
		w.EventuallyGone(ring[0], other)
	}},
}

// rings returns checks of cycles of several lengths.
func rings() []Check {
	var all []Check
	for _, n := range []int{1, 2, 5, 20} {
		needs := Collector
		if n == 1 {
			needs |= AnyOwners // ours refuses an object that owns itself
		}
		for _, policy := range []metav1.DeletionPropagation{probe.Foreground, probe.Background} {
			all = append(all, Check{fmt.Sprintf("CY-02 a cycle of %d, %s", n, policy), "R10 L2", needs, func(w *probe.Space) {
				ring := ring(w, n)
				w.Stay(ring...)
				w.Remove(ring[n/2], policy)
				w.Differs(cyclesAreCut(), func(w *probe.Space) { w.EventuallyGone(ring...) })
			}})
		}
		all = append(all, Check{fmt.Sprintf("CY-02 all of a cycle of %d deleted at once", n), "R10 L2", needs, func(w *probe.Space) {
			ring := ring(w, n)
			w.Settle(probe.ConfigMaps)
			var deletes sync.WaitGroup
			for _, o := range ring {
				deletes.Go(func() {
					policy := probe.Foreground
					err := w.TryRemove(o, metav1.DeleteOptions{PropagationPolicy: &policy})
					if err != nil && !apierrors.IsNotFound(err) { // the collector may have been faster, once one of the others is deleted
						w.T.Errorf("delete %s: %v", o, err)
					}
				})
			}
			deletes.Wait()
			w.Differs(cyclesAreCut(), func(w *probe.Space) { w.EventuallyGone(ring...) })
		}})
	}
	return all
}

// ring creates objects in a cycle: each has the previous one as its owner, and the first has
// the last; all references block.
func ring(w *probe.Space, n int) []probe.Object {
	w.T.Helper()
	ring := []probe.Object{w.Create(probe.ConfigMaps, "ring-0")}
	for i := range n - 1 {
		ring = append(ring, w.Create(probe.ConfigMaps, fmt.Sprint("ring-", i+1), probe.OwnedBy(probe.Blocking(ring[i]))))
	}
	w.SetOwners(ring[0], probe.Blocking(ring[n-1]))
	return ring
}
