package namespaces

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
)

// A term is one call of Lead. Before the first term and between terms, the controller may observe for months without
// deciding: a replica that stands by knows which namespaces terminate. It has no queue meanwhile, and a term begins with
// all of these. What a former term has found out about their contents begins anew, since others may have led meanwhile.

// queue is a queue of names of namespaces.
type queue = workqueue.TypedDelayingInterface[string]

// Lead empties namespaces until ctx ends, from what Observe has observed, which goes on meanwhile. It first waits for
// Observed. It returns when all its requests have ended. It may be called again after it has returned, but not by two
// goroutines at once.
func (c *Controller) Lead(ctx context.Context) error {
	if c.leading.Swap(true) {
		return fmt.Errorf("namespace controller: it leads already: %w", lifecycle.ErrAlreadyStarted)
	}
	defer c.leading.Store(false)
	if c.WaitForObserved(ctx) != nil {
		return nil // ctx has ended, as it should
	}
	queue := c.beginTerm()
	defer c.endTerm()
	if !c.lifecycle.IsSynced() {
		c.lifecycle.SetSynced()
	}
	var working sync.WaitGroup
	for range c.workers {
		working.Go(func() { c.work(ctx, queue) })
	}
	<-ctx.Done()
	queue.ShutDown()
	working.Wait()
	return nil
}

// beginTerm makes the queue, with all namespaces that terminate.
func (c *Controller) beginTerm() queue {
	queue := workqueue.NewTypedDelayingQueue[string]()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = queue
	for name, t := range c.terminations {
		c.forgetRefusedLocked(t)
		c.terminations[name] = &termination{uid: t.uid, since: t.since, rediscover: true}
		c.backoff.Forget(name)
		queue.Add(name)
	}
	return queue
}

func (c *Controller) endTerm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = nil
}

// enqueue makes a namespace due after a while. Between two terms nothing is due: the next one begins with all.
func (c *Controller) enqueue(name string, after time.Duration) {
	c.mu.Lock()
	queue := c.queue
	c.mu.Unlock()
	if queue != nil {
		queue.AddAfter(name, after)
	}
}

// Observed reports whether Observe has listed the namespaces.
func (c *Controller) Observed() bool { return c.informer.HasSynced() }

// WaitForObserved waits until Observed. It returns the error of ctx if that ends first.
func (c *Controller) WaitForObserved(ctx context.Context) error {
	select {
	case <-c.informer.HasSyncedChecker().Done():
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Synced reports whether the controller has listed the namespaces and is working. It is false between two calls of Lead.
func (c *Controller) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lifecycle.IsSynced() && c.queue != nil
}

// WaitForSync waits until the controller is synced for the first time. It returns the error of ctx if that ends first.
func (c *Controller) WaitForSync(ctx context.Context) error { return c.lifecycle.WaitForSync(ctx) }

// Ready returns nil when the controller is synced, and otherwise an error that wraps lifecycle.ErrNotSynced.
func (c *Controller) Ready() error {
	if err := c.Warm(); err != nil || c.Synced() {
		return err
	}
	return fmt.Errorf("%w: it stands by", lifecycle.ErrNotSynced)
}

// Warm is Ready for a replica that stands by: it returns nil when the namespaces are listed.
func (c *Controller) Warm() error {
	if c.Observed() {
		return nil
	}
	return fmt.Errorf("%w: the namespaces are not listed yet", lifecycle.ErrNotSynced)
}
