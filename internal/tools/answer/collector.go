package answer

import (
	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// CollectorOf returns the parts of a collector's status that explanations use. where is the source of the status.
func CollectorOf(where string, status *report.Status) *explain.Collector {
	c := explain.NewCollector(where)
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
	return c
}
