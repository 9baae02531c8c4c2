package conformance

import (
	"testing"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// A kind that cannot be read in any version.
func TestUnreadableKind(t *testing.T) {
	t.Run("CR-04 DR-04 DR-08 one kind that cannot be read holds up no other, and recovers", func(t *testing.T) {
		w := quiet(t)
		gizmos := w.Define("gizmos").At("v2")
		stored, repair := w.BreakReading(gizmos.At("v1"), probe.OwnedBy(probe.Nobody(probe.ConfigMaps)))
		w.collect(nil)
		owner := w.Create(probe.ConfigMaps, "owner")
		dependent := w.Create(probe.Secrets, "dependent", probe.OwnedBy(probe.Ref(owner)))
		w.Settle(probe.ConfigMaps, probe.Secrets)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner, dependent)
		repair()
		w.EventuallyGone(stored...)
	})
}
