package conformance

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// ring creates objects each of which is owned by the one before it, and the first
// by the last; all references block.
func (w *cluster) ring(n int, options ...option) []object {
	w.t.Helper()
	ring := []object{w.create(configMaps, "ring-0", options...)}
	for i := range n - 1 {
		ring = append(ring, w.create(configMaps, fmt.Sprint("ring-", i+1), append(options, ownedBy(blocking(ring[i])))...))
	}
	w.setOwners(ring[0], blocking(ring[n-1]))
	return ring
}

func TestCycles(t *testing.T) {
	t.Parallel()
	t.Run("CY-01 three that block each other", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		ring := w.ring(3)
		w.stay(ring...)
		w.remove(ring[0], foreground)
		w.eventuallyGone(ring...)
	})
	for _, n := range []int{1, 2, 5, 20} {
		for _, policy := range []metav1.DeletionPropagation{foreground, background} {
			t.Run(fmt.Sprintf("CY-02 a cycle of %d, %s", n, policy), func(t *testing.T) {
				t.Parallel()
				w := sharedWith(t, unchecked)
				ring := w.ring(n)
				w.stay(ring...)
				w.remove(ring[n/2], policy)
				w.eventuallyGone(ring...)
			})
		}
		t.Run(fmt.Sprintf("CY-02 all of a cycle of %d deleted at once", n), func(t *testing.T) {
			t.Parallel()
			w := sharedWith(t, unchecked)
			ring := w.ring(n)
			w.settle(configMaps)
			var deletes sync.WaitGroup
			for _, o := range ring {
				deletes.Go(func() { w.remove(o, foreground) })
			}
			deletes.Wait()
			w.eventuallyGone(ring...)
		})
	}
	t.Run("CY-02 orphaning in a cycle keeps the others", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		ring := w.ring(3)
		w.settle(configMaps)
		w.remove(ring[0], orphan)
		w.eventuallyGone(ring[0])
		w.eventuallyOwned(ring[1])
		w.stay(ring[1:]...)
	})
	t.Run("CY-02 a solid owner outside keeps its dependent and what hangs on that", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		outside := w.create(configMaps, "outside")
		ring := w.ring(3)
		w.setOwners(ring[1], blocking(ring[0]), ref(outside))
		w.settle(configMaps)
		w.remove(ring[0], foreground)
		w.eventuallyGone(ring[0])
		w.eventuallyOwned(ring[1], ref(outside))
		w.stay(outside, ring[1], ring[2])
	})
	t.Run("CY-02 an owner in another cycle is solid while that cycle lives", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		ring := w.ring(3)
		other := w.create(configMaps, "other", ownedBy(blocking(ring[0])))
		w.setOwners(ring[0], blocking(ring[2]), blocking(other))
		w.settle(configMaps)
		w.remove(ring[1], foreground)
		w.eventuallyGone(ring[1], ring[2])
		w.eventuallyOwned(ring[0], blocking(other))
		w.stay(ring[0], other)
		w.remove(other, foreground)
		w.eventuallyGone(ring[0], other)
	})
}

// Two that block each other, both in foreground deletion before a collector sees them.
func TestMutualBlock(t *testing.T) {
	t.Run("CF-06 only references inside the cycle stop blocking", func(t *testing.T) {
		w := quiet(t)
		// Two that block each other; one has two other owners that are in foreground
		// deletion too and outside the cycle, of which one is blocked.
		outside, silent := w.create(configMaps, "outside", held), w.create(configMaps, "silent", held)
		first := w.create(configMaps, "first", held)
		second := w.create(configMaps, "second", held, ownedBy(blocking(first), blocking(outside), ref(silent)))
		w.setOwners(first, blocking(second))
		for _, o := range []object{outside, silent, first, second} {
			w.remove(o, foreground)
		}
		w.collect(nil)
		// R10 promises that the cycle is cut, and nothing outside of it, but not where. Each of
		// the two objects is reconsidered by itself. If both are at the same time, both see the
		// cycle and both references stop blocking. If one comes after the other, its reference is
		// no longer part of a cycle and must stay: to cut it would release an owner that has to
		// wait. So there are three correct outcomes, and in all of them the references to outside
		// and silent are unchanged. The object that is no longer blocked is released.
		type references = []metav1.OwnerReference
		cuts := []struct {
			first, second references
			released      []object
		}{
			{references{notBlocking(second)}, references{notBlocking(first), blocking(outside), ref(silent)}, []object{first, second}},
			{references{notBlocking(second)}, references{blocking(first), blocking(outside), ref(silent)}, []object{second}},
			{references{blocking(second)}, references{notBlocking(first), blocking(outside), ref(silent)}, []object{first}},
		}
		var released []object
		eventually.Agrees(t, func() string {
			a, b := w.must(first).OwnerReferences, w.must(second).OwnerReferences
			for _, cut := range cuts {
				if cmp.Equal(cut.first, a) && cmp.Equal(cut.second, b) {
					released = cut.released
					return ""
				}
			}
			return fmt.Sprintf("first is owned by %v, second by %v", a, b)
		})
		for _, o := range released {
			w.eventuallyFinalizers(o, hold)
		}
		w.eventuallyFinalizers(outside, hold, foregroundFinalizer)
		w.letGo(first)
		w.letGo(second)
		w.eventuallyGone(first, second)
		w.eventuallyFinalizers(outside, hold)
	})
}
