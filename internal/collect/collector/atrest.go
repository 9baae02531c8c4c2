package collector

import "github.com/coppice-dev/coppice/internal/collect/queue"

// AtRest returns how many objects were taken out of the queue so far, and whether the collector is idle:
// nothing waits in the queue, in back-off or at the barrier, and no kind is paused. It needs
// Config.Restartable.
func (c *Collector) AtRest() (taken int, isAtRest bool) {
	taken, unfinished := c.Work()
	if q, ok := c.queue.(*queue.Reopening); !ok || q.Delayed() > 0 {
		return taken, false
	}
	return taken, len(unfinished) == 0
}
