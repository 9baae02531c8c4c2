package collector

import "sync"

// crew are the workers of Run. A worker whose request is not answered for long does not count: another one takes its part
// until the decision has ended (L5).
type crew struct {
	mu    sync.Mutex
	start func() // starts one more worker; nil outside of Run; guarded by mu, as all below
	late  int    // workers that do not count
	spare int    // workers that were started for these
}

// begin begins a Run, and ends with it.
func (c *crew) begin(start func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start, c.late, c.spare = start, 0, 0
}

// lend notes that a worker does not count.
func (c *crew) lend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late++
	if c.start != nil && c.spare < c.late {
		c.spare++
		c.start()
	}
}

// back notes that such a worker counts again.
func (c *crew) back() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late--
}

// isNeeded reports whether a worker that was started for another one is to go on.
func (c *crew) isNeeded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spare > c.late {
		c.spare--
		return false
	}
	return true
}
