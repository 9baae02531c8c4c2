// Package controller contains the common parts of the controllers of built-in objects, like
// pkg/controller in Kubernetes: the loop that runs one, the controller context with its informers,
// pod control, revision control, expectations, and the controller-ref manager that adopts and releases. Each controller
// lives in a package below this one and consists of its rules and little else.
//
//	watch event ──▶ Source.Keys ──▶ queue of keys
//	key ──▶ Reconcile: the owner and its dependents from the caches, adopted and released
//	    ──▶ the controller's plan (pure: desired and observed in, steps out)
//	    ──▶ the steps as requests, each conditioned on the observed version
//
// Two things make a controller safe on a cache that lags. The first is that a write is conditioned on
// uid and resourceVersion, so that a decision about an old object ends in a conflict. Creations
// cannot be conditioned: a controller that does not yet see its own creations would create the
// objects again. So [Expectations] remember, for each owner, how far the cache must have advanced;
// until then the controller skips the owner. The event that advances the cache that far also enqueues
// the owner's key; [LostEventPeriod] is for lost events.
//
// For an owner that is being deleted only the status is kept up to date: its dependents belong
// to the garbage collector.
//
// # Adding a controller
//
//  1. A package below this one, named as upstream's (docs/upstream.md has the exceptions): plan.go with Decide, which is pure (desired
//     state, observed state and the time in; a Plan out) and has a table of cases as its test, and
//     controller.go with New, which takes a [Context] and returns a [Controller].
//  2. Its sources: [For] its own objects, [RefManager.Source] for its dependents, and all other
//     objects that affect its decisions. Every informer comes from Context.Informers, unless no other
//     controller needs the resource (then it is in Controller.Informers).
//  3. Expectations for everything it creates: pods through [PodControl], other objects by
//     Expectations.ExpectVersion. Every other write carries uid and resourceVersion.
//  4. A simulation on caches that lag (package laggingcache) where it creates or deletes.
//  5. One line each in internal/system/workloads.go, which starts it, and in
//     internal/apiserver/auth/bootstrappolicy/controllers.go, which gives it its rights.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// Controller is one controller: its sources, and its function that reconciles one object.
type Controller struct {
	// Name appears in logs and is the source of its events.
	Name string
	// Sources map events to the keys to reconcile.
	Sources []Source
	// Requests carries further requests to reconcile an object; nil if only the sources make them. A
	// sender must give up when the context of Run ends.
	Requests <-chan Request
	// Informers are the informers that no other controller shares; they run while this controller runs.
	Informers []cache.SharedIndexInformer
	// Reconcile brings the object with that key, which may be gone, closer to the desired
	// state. It is called again when a source enqueues the key, after the time it returns
	// if that is positive, also with an error, and after a back-off when it fails. It is never called
	// concurrently for the same key.
	Reconcile func(ctx context.Context, key cache.ObjectName) (requeueAfter time.Duration, err error)
	// Workers is the number of keys reconciled concurrently.
	Workers int
	// BatchPeriod is how long a key waits in the queue for further events.
	BatchPeriod time.Duration
	// Holds are the statuses that wait to be written; nil if none ever does.
	Holds *Holds

	load load
}

// busy returns what the controller is doing: the numbers of the objects that it is reconciling, of those that it could
// reconcile at once, and of the statuses that it holds back. It is empty if there are none.
func (c *Controller) busy() string {
	inWork, waiting := c.load.numbers()
	held := 0
	if c.Holds != nil {
		held = c.Holds.number()
	}
	if inWork+waiting+held == 0 {
		return ""
	}
	return fmt.Sprintf("%d in work, %d waiting, %d with a status to write", inWork, waiting, held)
}

// Request asks for the reconciliation of an object, after a delay in which further requests are
// merged.
type Request struct {
	Key   cache.ObjectName
	After time.Duration
}

// Source is a cache whose events enqueue keys of a controller.
type Source struct {
	Informer cache.SharedIndexInformer
	// Keys returns the objects to reconcile when obj was added, changed or deleted. After a
	// change it is called with both the old and the new object.
	Keys func(obj any) []cache.ObjectName
	// Ignore reports whether a change enqueues no keys, like the heartbeat of a node; nil if every
	// change enqueues keys.
	Ignore func(before, now any) bool
	// Expectations about these objects' dependents are dropped when the object is gone.
	Expectations []*Expectations
	// Late means that the informer may start later than the controller; the workers then do not
	// wait until it has synced.
	Late bool
}

// For returns the source of a controller's own objects, the owners in the expectations.
func For(informer cache.SharedIndexInformer, expectations ...*Expectations) Source {
	return Source{Informer: informer, Expectations: expectations, Keys: func(obj any) []cache.ObjectName {
		if o, ok := obj.(metav1.Object); ok {
			return []cache.ObjectName{cache.MetaObjectToName(o)}
		}
		return nil
	}}
}

// Run runs the controller until ctx ends, and returns when all its goroutines have ended. The caller
// runs the shared informers. A controller can run only once.
func (c *Controller) Run(ctx context.Context, log *slog.Logger, clock clock.WithTicker) error {
	var running sync.WaitGroup
	defer running.Wait()
	queue := c.load.queue(clock)
	defer queue.ShutDown()
	var synced []cache.InformerSynced
	for _, source := range c.Sources {
		registration, err := source.Informer.AddEventHandler(source.guarded(ctx, log, c.Name).handler(func(key cache.ObjectName) { queue.AddAfter(key, c.BatchPeriod) }))
		if ctx.Err() != nil {
			return nil // stopped while it starts: a shared informer takes no handlers then
		}
		if err != nil {
			return fmt.Errorf("%s: watch: %w", c.Name, err)
		}
		defer func() { _ = source.Informer.RemoveEventHandler(registration) }()
		if !source.Late {
			synced = append(synced, registration.HasSynced)
		}
	}
	for _, informer := range c.Informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	running.Go(func() { c.receive(ctx, queue) })
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	failures := pace.NewFailures(log, clock)
	for range c.Workers {
		running.Go(func() { c.work(ctx, log, failures, queue) })
	}
	<-ctx.Done()
	return nil
}

// receive enqueues the keys from Requests.
func (c *Controller) receive(ctx context.Context, queue workqueue.TypedDelayingInterface[cache.ObjectName]) {
	for {
		select {
		case r := <-c.Requests: // never, if it is nil
			queue.AddAfter(r.Key, r.After)
		case <-ctx.Done():
			return
		}
	}
}

func (s Source) handler(add func(cache.ObjectName)) cache.ResourceEventHandler {
	observe := func(obj any) {
		for _, key := range s.Keys(obj) {
			add(key)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: observe,
		UpdateFunc: func(before, now any) {
			if !sameUID(before, now) {
				s.forget(before) // its deletion has no event of its own after a relist
			}
			if s.Ignore != nil && s.Ignore(before, now) {
				return
			}
			observe(before)
			observe(now)
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			observe(obj)
			s.forget(obj)
		},
	}
}

func (s Source) forget(obj any) {
	if o, ok := obj.(metav1.Object); ok {
		for _, expectations := range s.Expectations {
			expectations.Forget(o.GetUID())
		}
	}
}

// sameUID reports whether two states are those of one object, and not of one that took the name of another.
func sameUID(before, now any) bool {
	a, ok := before.(metav1.Object)
	b, both := now.(metav1.Object)
	return ok && both && a.GetUID() == b.GetUID()
}

func (c *Controller) work(ctx context.Context, log *slog.Logger, failures *pace.Failures, queue workqueue.TypedRateLimitingInterface[cache.ObjectName]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		requeueAfter, err := c.reconcile(ctx, key)
		if requeueAfter > 0 {
			queue.AddAfter(key, requeueAfter)
		}
		switch {
		case err == nil:
			queue.Forget(key)
		case ctx.Err() != nil:
		case isStaleCache(err):
			log.DebugContext(ctx, "not reconciled", "controller", c.Name, "object", key, "error", err)
			queue.AddRateLimited(key)
		default:
			failures.Warn(ctx, "not reconciled", key.String(), err, append([]any{"controller", c.Name, "object", key}, stackOf(err)...)...)
			queue.AddRateLimited(key)
		}
		queue.Done(key)
		c.load.ended.Add(1)
	}
}

// reconcile returns a panic as an error.
func (c *Controller) reconcile(ctx context.Context, key cache.ObjectName) (requeueAfter time.Duration, err error) {
	err = guard(func() (err error) {
		requeueAfter, err = c.Reconcile(ctx, key)
		return err
	})
	return requeueAfter, err
}

// IgnoreNotFound returns nil for a NotFound error, and any other error unchanged.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// IgnoreNamespaceTerminating returns nil for the error of a creation in a namespace that is being deleted, since no retry
// can succeed, and any other error unchanged.
func IgnoreNamespaceTerminating(err error) error {
	if IsNamespaceTerminating(err) {
		return nil
	}
	return err
}

// isStaleCache reports whether an error only means that the cache was stale. Joined errors mean that if each of them does.
func isStaleCache(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(one error) bool { return !isStaleCache(one) })
	}
	return IsConflict(err) || IsNotFound(err) || IsAlreadyExists(err)
}
