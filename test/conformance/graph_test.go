package conformance

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the graph has to know is visible in what is collected.
func TestGraph(t *testing.T) {
	t.Parallel()
	t.Run("GB-01 a chain of owners goes with its first", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		chain := w.chain(6)
		w.stay(chain...)
		w.remove(chain[0], background)
		w.eventuallyGone(chain...)
	})
	t.Run("GB-02 what hangs on a link goes with it, what it hangs on stays", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		chain := w.chain(5)
		w.remove(chain[2], background)
		w.eventuallyGone(chain[2:]...)
		w.stay(chain[:2]...)
	})
	t.Run("GB-03 an object changes its owners, into a cycle and out of it", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		chain := w.chain(4)
		w.setOwners(chain[0], ref(chain[3]))
		w.stay(chain...)
		other := w.create(configMaps, "other")
		w.setOwners(chain[1], ref(other))
		w.stay(chain...)
		w.remove(other, background)
		w.eventuallyGone(chain...)
	})
}

// chain creates objects of two kinds, each owned by the one before it.
func (w *cluster) chain(n int) []object {
	w.t.Helper()
	chain := []object{w.create(configMaps, "link-0")}
	for i := range n - 1 {
		k := configMaps
		if i%2 == 0 {
			k = secrets
		}
		chain = append(chain, w.create(k, fmt.Sprint("link-", i+1), ownedBy(ref(chain[i]))))
	}
	return chain
}

// Objects that exist when a collector starts, and events that it misses while it runs.
func TestObservation(t *testing.T) {
	t.Run("GB-04 dependents are observed before their owner", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		resume := tap.stall(configMaps)
		owner := w.create(configMaps, "owner")
		dependents := w.createMany(3, secrets, "dependent", ownedBy(ref(owner)))
		w.stay(dependents...)
		resume()
		w.stay(append(dependents, owner)...)
		w.remove(owner, background)
		w.eventuallyGone(dependents...)
	})
	t.Run("GB-07 a collector that starts before the server answers", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		answer := tap.refuse(match{discovery: "/"}, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		w.collectSoon(tap, collecting)
		tap.awaits(t, match{discovery: "/"})
		answer()
		w.settle(configMaps, secrets)
	})
	t.Run("TR-01 an owner is being orphaned when it is first seen", func(t *testing.T) {
		w := quiet(t)
		owner := w.create(configMaps, "owner")
		dependents := w.createMany(3, secrets, "dependent", ownedBy(blocking(owner)))
		w.remove(owner, orphan)
		w.eventuallyFinalizers(owner, orphanFinalizer)
		w.collect(nil)
		w.eventuallyGone(owner)
		for _, d := range dependents {
			w.eventuallyOwned(d)
		}
		w.stay(dependents...)
	})
	t.Run("TR-02 an owner is in foreground deletion when it is first seen", func(t *testing.T) {
		w := quiet(t)
		owner := w.create(configMaps, "owner")
		dependents := w.createMany(3, secrets, "dependent", ownedBy(blocking(owner)))
		w.remove(owner, foreground)
		w.eventuallyFinalizers(owner, foregroundFinalizer)
		order := w.watch(configMaps, secrets)
		w.collect(nil)
		w.eventuallyGone(owner)
		order.goneBefore(owner, dependents...)
	})
	t.Run("TR-08 a deletion that no watch shows", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		owner := w.create(configMaps, "owner")
		live := w.create(configMaps, "live")
		dependents := w.createMany(3, secrets, "dependent", ownedBy(ref(owner)))
		kept := w.create(secrets, "kept", ownedBy(ref(live)))
		w.collect(tap)
		w.stay(append(dependents, kept)...)
		answer := tap.refuse(reads(configMaps), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		tap.cut(configMaps)
		w.remove(owner, background)
		w.settle(secrets)
		answer()
		w.eventuallyGone(dependents...)
		w.stay(kept)
	})
	t.Run("AC-01 an owner is asked for once, for all who name it", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gone := nobody(configMaps)
		dependents := w.createMany(50, secrets, "dependent", ownedBy(gone))
		w.collect(tap)
		w.eventuallyGone(dependents...)
		if got := tap.count(match{verbs: "get", kind: configMaps, name: gone.Name}); got != 1 {
			t.Errorf("the owner was asked for %d times, want once", got)
		}
	})
	t.Run("AC-02 a claim at wrong coordinates says nothing of those at the right ones", func(t *testing.T) {
		w := quiet(t)
		for i, owner := range []object{w.create(configMaps, "owner"), w.create(clusterRoles, "owner")} {
			wrong := ref(owner)
			wrong.Name = "other"
			bad := w.create(secrets, fmt.Sprint("bad-", i), ownedBy(wrong))
			good := w.create(secrets, fmt.Sprint("good-", i), ownedBy(ref(owner)))
			stop := w.collect(nil)
			w.eventuallyGone(bad)
			w.stay(good, owner)
			stop()
		}
	})
}
