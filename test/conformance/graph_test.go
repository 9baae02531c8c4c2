package conformance

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Objects that exist when a collector starts, and events that it misses while it runs.
func TestEventsMissedAreMadeUp(t *testing.T) {
	t.Run("GB-04 dependents are observed before their owner", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		resume := tap.stall(probe.ConfigMaps)
		owner := w.Create(probe.ConfigMaps, "owner")
		dependents := w.CreateMany(3, probe.Secrets, "dependent", probe.OwnedBy(probe.Ref(owner)))
		w.Stay(dependents...)
		resume()
		w.Stay(append(dependents, owner)...)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(dependents...)
	})
	t.Run("GB-07 a collector that starts before the server answers", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		answer := tap.refuse(match{discovery: "/"}, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		w.collectSoon(tap, collecting)
		tap.awaits(t, match{discovery: "/"})
		answer()
		w.Settle(probe.ConfigMaps, probe.Secrets)
	})
	t.Run("TR-01 an owner is being orphaned when it is first seen", func(t *testing.T) {
		w := quiet(t)
		owner := w.Create(probe.ConfigMaps, "owner")
		dependents := w.CreateMany(3, probe.Secrets, "dependent", probe.OwnedBy(probe.Blocking(owner)))
		w.Remove(owner, probe.Orphan)
		w.EventuallyFinalizers(owner, probe.OrphanFinalizer)
		w.collect(nil)
		w.EventuallyGone(owner)
		for _, d := range dependents {
			w.EventuallyOwned(d)
		}
		w.Stay(dependents...)
	})
	t.Run("TR-02 an owner is in foreground deletion when it is first seen", func(t *testing.T) {
		w := quiet(t)
		owner := w.Create(probe.ConfigMaps, "owner")
		dependents := w.CreateMany(3, probe.Secrets, "dependent", probe.OwnedBy(probe.Blocking(owner)))
		w.Remove(owner, probe.Foreground)
		w.EventuallyFinalizers(owner, probe.ForegroundFinalizer)
		order := w.Watch(probe.ConfigMaps, probe.Secrets)
		w.collect(nil)
		w.EventuallyGone(owner)
		order.GoneBefore(owner, dependents...)
	})
	t.Run("TR-08 a deletion that no watch shows", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		owner := w.Create(probe.ConfigMaps, "owner")
		live := w.Create(probe.ConfigMaps, "live")
		dependents := w.CreateMany(3, probe.Secrets, "dependent", probe.OwnedBy(probe.Ref(owner)))
		kept := w.Create(probe.Secrets, "kept", probe.OwnedBy(probe.Ref(live)))
		w.collect(tap)
		w.Stay(append(dependents, kept)...)
		answer := tap.refuse(reads(probe.ConfigMaps), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		tap.cut(probe.ConfigMaps)
		w.Remove(owner, probe.Background)
		w.Settle(probe.Secrets)
		answer()
		w.EventuallyGone(dependents...)
		w.Stay(kept)
	})
	t.Run("AC-01 an owner is asked for once, for all who name it", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gone := probe.Nobody(probe.ConfigMaps)
		dependents := w.CreateMany(50, probe.Secrets, "dependent", probe.OwnedBy(gone))
		w.collect(tap)
		w.EventuallyGone(dependents...)
		if got := tap.count(match{verbs: "get", kind: probe.ConfigMaps, name: gone.Name}); got != 1 {
			t.Errorf("the owner was asked for %d times, want once", got)
		}
	})
	t.Run("AC-02 a claim at wrong coordinates says nothing of those at the right ones", func(t *testing.T) {
		w := quiet(t)
		for i, owner := range []probe.Object{w.Create(probe.ConfigMaps, "owner"), w.Create(probe.ClusterRoles, "owner")} {
			wrong := probe.Ref(owner)
			wrong.Name = "other"
			bad := w.Create(probe.Secrets, fmt.Sprint("bad-", i), probe.OwnedBy(wrong))
			good := w.Create(probe.Secrets, fmt.Sprint("good-", i), probe.OwnedBy(probe.Ref(owner)))
			stop := w.collect(nil)
			w.EventuallyGone(bad)
			w.Stay(good, owner)
			stop()
		}
	})
}
