package conformance

import (
	"fmt"
	"time"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// The collected objects show whether the graph of owners is correct.
var graph = []Check{
	{"GB-01 a chain of owners is deleted with the first one", "R7 R11 L1", Collector, func(w *probe.Space) {
		chain := chain(w, 6)
		w.Stay(chain...)
		w.Remove(chain[0], probe.Background)
		w.EventuallyGone(chain...)
	}},
	{"GB-02 the dependents of a link are deleted with it, its owners stay", "R7 R8 R11 S1", Collector, func(w *probe.Space) {
		chain := chain(w, 5)
		w.Remove(chain[2], probe.Background)
		w.EventuallyGone(chain[2:]...)
		w.Stay(chain[:2]...)
	}},
	{"GB-03 an object changes its owners, into a cycle and out of it", "R7 R11", Collector, func(w *probe.Space) {
		chain := chain(w, 4)
		w.SetOwners(chain[0], probe.Ref(chain[3]))
		w.Stay(chain...)
		other := w.Create(probe.ConfigMaps, "other")
		w.SetOwners(chain[1], probe.Ref(other))
		w.Stay(chain...)
		w.Remove(other, probe.Background)
		w.EventuallyGone(chain...)
	}},
}

// chain creates objects of two kinds, each with the previous one as its owner.
func chain(w *probe.Space, n int) []probe.Object {
	w.T.Helper()
	chain := []probe.Object{w.Create(probe.ConfigMaps, "link-0")}
	for i := range n - 1 {
		k := probe.ConfigMaps
		if i%2 == 0 {
			k = probe.Secrets
		}
		chain = append(chain, w.Create(k, fmt.Sprint("link-", i+1), probe.OwnedBy(probe.Ref(chain[i]))))
	}
	return chain
}

// manyFakeOwners are checks of a tenant whose objects name thousands of owners.
var manyFakeOwners = []Check{
	{"H8 they do not hold up the cascades of others", "R7 L5", Collector | AnyOwners, func(w *probe.Space) {
		attacker := w.Another()
		w.Settle(probe.ConfigMaps, probe.Secrets)
		calm := cascade(w, "calm", func() {})
		// The attack begins just before the cascade: settling in between would wait until the
		// collector has processed the attack.
		attacked := cascade(w, "attacked", func() {
			for i := range 3 {
				attacker.Create(probe.ConfigMaps, fmt.Sprint("attack-", i), probe.OwnedBy(probe.Fakes(1000)...))
			}
		})
		w.T.Logf("a cascade takes %s, and under attack %s", calm.Round(time.Millisecond), attacked.Round(time.Millisecond))
		w.Differs(claimsAreSharedByAll(), func(w *probe.Space) {
			// Upstream takes 24 s for one such object. The limit allows for other work on the machine.
			if limit := calm + 15*time.Second; attacked > limit {
				w.T.Errorf("want a cascade under attack to take at most %s; it took %s, and %s before", limit, attacked, calm)
			}
		})
	}},
}

// cascade returns the time from the deletion of an owner until its dependents are gone. It calls
// attack just before the deletion.
func cascade(w *probe.Space, name string, attack func()) time.Duration {
	w.T.Helper()
	owner := w.Create(probe.ConfigMaps, name)
	dependents := w.CreateMany(20, probe.Secrets, name, probe.OwnedBy(probe.Ref(owner)))
	w.Settle(probe.Secrets)
	attack()
	began := time.Now()
	w.Remove(owner, probe.Background)
	w.EventuallyGone(dependents...)
	return time.Since(began)
}
