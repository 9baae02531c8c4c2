package namespaces

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// began records that a worker begins with a namespace.
func (c *Controller) began(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.syncing++
	c.syncs++
	if t := c.terminations[name]; t != nil {
		t.held, t.staying = false, 0
	}
}

func (c *Controller) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.syncing--
}

// hold records the result of a sync.
func (c *Controller) hold(t *termination, step Wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	step.Refused = t.staying
	t.held = step.held()
}

// Syncs returns how many syncs have begun, and how many are under way.
func (c *Controller) Syncs() (begun, underWay int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.syncs, c.syncing
}

// Unsettled describes the remaining work on namespaces that the caller has seen terminating. It is
// empty when each of them is finalized, or has only objects that wait for others: they are being
// deleted, are protected, or the server refuses to delete them.
func (c *Controller) Unsettled(names []string) []string {
	var moves []string
	for _, name := range names {
		if why := c.unsettled(name); why != "" {
			moves = append(moves, fmt.Sprintf("namespace %s: %s", name, why))
		}
	}
	return moves
}

func (c *Controller) unsettled(name string) string {
	item, exists, err := c.informer.GetStore().GetByKey(name)
	ns, ok := item.(*corev1.Namespace)
	switch {
	case err != nil || !exists || !ok || ns.DeletionTimestamp == nil:
		return "the controller has not seen yet that it is terminating, or that it is gone"
	case !Pending(ns):
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.terminations[name]; t == nil || t.uid != ns.UID || !t.held {
		return "it is being emptied"
	}
	return ""
}
