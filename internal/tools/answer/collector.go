package answer

import (
	"cmp"
	"slices"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// CollectorOf returns the parts of a collector's status that explain why objects still exist; where is its source.
func CollectorOf(where string, status *report.Status) *explain.Collector {
	c := explain.NewCollector(where)
	c.Program, c.Controllers = cmp.Or(status.Program, c.Program), slices.DeleteFunc(slices.Clone(status.Controllers), func(name string) bool {
		return name == process.GarbageCollector || name == process.NamespaceController // which may not work
	})
	for _, w := range status.Barrier {
		held := explain.Held{Since: w.Since}
		for _, h := range w.Holds {
			held.Unread = append(held.Unread, explain.HeldBy(h))
		}
		c.Held[ownership.UID(w.UID)] = held
	}
	for _, p := range status.Paused {
		c.Pause(p.Kind, p.Since)
	}
	all := 0
	for _, count := range status.RefusedCounts {
		all += count.Objects
	}
	c.MoreRefused = all > len(status.Refused)
	for _, r := range status.Refused {
		c.Refused[ownership.UID(r.UID)] = explain.Refused{
			Refusal: refusal.Refusal{By: refusal.By(r.By), Name: r.Refuser, Binding: r.Binding, Message: r.Message}, Since: r.Since,
		}
	}
	return c
}
