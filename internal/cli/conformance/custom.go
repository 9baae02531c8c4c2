package conformance

import (
	"fmt"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Custom resources as owners and as dependents.
var custom = []Check{
	{"MX-01 custom owns core and core owns custom", "R7 R11", Collector | CustomResources, func(w *probe.Space) {
		gizmos := w.Define("gizmos")
		for _, kinds := range [][2]probe.Kind{{gizmos, probe.ConfigMaps}, {probe.ConfigMaps, gizmos}} {
			owner := w.Create(kinds[0], "owner-of-"+kinds[1].Resource)
			dependent := w.Create(kinds[1], "dependent-of-"+kinds[0].Resource, probe.OwnedBy(probe.Blocking(owner)))
			w.Settle(gizmos, probe.ConfigMaps)
			order := w.Watch(gizmos, probe.ConfigMaps)
			w.Remove(owner, probe.Foreground)
			w.EventuallyGone(owner)
			order.GoneBefore(owner, dependent)
		}
	}},
	{"CR-01 foreground among objects of a kind that is new", "R14 R15", Collector | CustomResources, func(w *probe.Space) {
		gizmos := w.Define("gizmos")
		owner := w.Create(gizmos, "owner")
		dependents := w.CreateMany(3, gizmos, "dependent", probe.OwnedBy(probe.Blocking(owner)))
		w.Observed(gizmos)
		order := w.Watch(gizmos)
		w.Remove(owner, probe.Foreground)
		w.EventuallyGone(owner)
		order.GoneBefore(owner, dependents...)
	}},
	{"CR-02 background among objects in no namespace, of a kind that is new", "R11", Collector | CustomResources, func(w *probe.Space) {
		gizmos := w.DefineAs("gizmos", probe.Definition{Cluster: true, Versions: []any{probe.Version("v1", true, true)}})
		owner, other := w.Create(gizmos, "owner"), w.Create(gizmos, "other")
		dependents := w.CreateMany(3, gizmos, "dependent", probe.OwnedBy(probe.Ref(owner)))
		core := w.Create(probe.ConfigMaps, "dependent", probe.OwnedBy(probe.Ref(owner)))
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner, core)
		w.EventuallyGone(dependents...)
		w.AreKept(other)
	}},
	{"CR-03 a definition is deleted with its instances and their dependents, and is created again", "R3 R11", Collector | CustomResources, func(w *probe.Space) {
		for i := range 2 {
			gizmos := w.Define("gizmos")
			// The server may serve a recreated definition only a moment after the definition is
			// established.
			var owner probe.Object
			w.Until("to create an instance of the new kind", func() string {
				var err error
				if owner, err = w.TryCreate(gizmos, "owner"); err != nil {
					return err.Error()
				}
				return ""
			})
			dependent := w.Create(probe.ConfigMaps, fmt.Sprint("dependent-", i), probe.OwnedBy(probe.Ref(owner)))
			w.Settle(gizmos)
			w.AreKept(dependent)
			w.Undefine(gizmos)
			w.EventuallyGone(dependent)
		}
	}},
}
