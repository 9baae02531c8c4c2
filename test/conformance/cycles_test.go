package conformance

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Two that block each other, both in foreground deletion before a collector sees them.
func TestMutualBlock(t *testing.T) {
	t.Run("CF-06 only references inside the cycle stop blocking", func(t *testing.T) {
		w := quiet(t)
		// Two objects block each other; one has two other owners outside the cycle that are in
		// foreground deletion too, and it blocks one of them.
		outside, silent := w.Create(probe.ConfigMaps, "outside", probe.Held), w.Create(probe.ConfigMaps, "silent", probe.Held)
		first := w.Create(probe.ConfigMaps, "first", probe.Held)
		second := w.Create(probe.ConfigMaps, "second", probe.Held, probe.OwnedBy(probe.Blocking(first), probe.Blocking(outside), probe.Ref(silent)))
		w.SetOwners(first, probe.Blocking(second))
		for _, o := range []probe.Object{outside, silent, first, second} {
			w.Remove(o, probe.Foreground)
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
			released      []probe.Object
		}{
			{references{probe.NotBlocking(second)}, references{probe.NotBlocking(first), probe.Blocking(outside), probe.Ref(silent)}, []probe.Object{first, second}},
			{references{probe.NotBlocking(second)}, references{probe.Blocking(first), probe.Blocking(outside), probe.Ref(silent)}, []probe.Object{second}},
			{references{probe.Blocking(second)}, references{probe.NotBlocking(first), probe.Blocking(outside), probe.Ref(silent)}, []probe.Object{first}},
		}
		var released []probe.Object
		eventually.Agrees(t, func() string {
			a, b := w.Must(first).OwnerReferences, w.Must(second).OwnerReferences
			for _, cut := range cuts {
				if cmp.Equal(cut.first, a) && cmp.Equal(cut.second, b) {
					released = cut.released
					return ""
				}
			}
			return fmt.Sprintf("first is owned by %v, second by %v", a, b)
		})
		for _, o := range released {
			w.EventuallyFinalizers(o, probe.Hold)
		}
		w.EventuallyFinalizers(outside, probe.Hold, probe.ForegroundFinalizer)
		w.LetGo(first)
		w.LetGo(second)
		w.EventuallyGone(first, second)
		w.EventuallyFinalizers(outside, probe.Hold)
	})
}
