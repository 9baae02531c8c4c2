// Package workloads is the frame of the controllers that own objects: what they have in
// common, so that each of them, in a package below, is its rules and little else.
//
//	watch event ──▶ Source.Keys ──▶ queue of keys
//	key ──▶ Reconcile: the owner and its Dependents from the caches, adopted and released
//	    ──▶ the controller's plan (pure: desired and observed in, steps out)
//	    ──▶ the steps as requests, each conditioned on what was observed
//
// Two things make a controller safe on a cache that lags. The first is that a write is
// conditioned on uid and resourceVersion, so that what was decided about an old object
// meets a conflict. Creations cannot be: a controller that does not see yet what it has
// created would create it again. So the Ledger remembers, for each owner, how far the
// cache must have come; until then the owner is left alone. The event that brings the
// cache there brings the owner's key, too.
//
// An owner that is being deleted has its status kept and nothing else: its dependents
// are the collector's.
package controller

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Back-off of a key whose reconciliation fails.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// Controller is one controller: what it watches, and what it does about one object.
type Controller struct {
	// Name is in logs and is the source of its events.
	Name string
	// Sources say which keys an event concerns.
	Sources []Source
	// Own are informers that nobody else has; they run while the controller does.
	Own []cache.SharedIndexInformer
	// Reconcile brings the object with that key, which may be gone, closer to what is
	// wished for. It is called again after the time it returns, if that is positive, and
	// when a source says so; and after a pause when it fails. It is not called for the
	// same key twice at a time.
	Reconcile func(ctx context.Context, key cache.ObjectName) (again time.Duration, err error)
	// Workers is how many keys are worked on at a time.
	Workers int
	// Pause is how long events are gathered before a key is worked on.
	Pause time.Duration
}

// Source is a cache whose events give a controller work.
type Source struct {
	Informer cache.SharedIndexInformer
	// Keys are the objects to reconcile when obj was added, has changed or is gone. After
	// a change it is called with what the object was and with what it is.
	Keys func(obj any) []cache.ObjectName
	// Same tells of a change that it concerns nobody, as the heartbeat of a node does; nil
	// where every change concerns somebody.
	Same func(before, now any) bool
	// Ledgers have pages of these objects, which end with them.
	Ledgers []*Ledger
}

// Run works until ctx ends, and returns when all it started has ended. The informers that
// are shared are the caller's to run. A controller runs once.
func (c *Controller) Run(ctx context.Context, log *slog.Logger, clock clock.WithTicker) error {
	var running sync.WaitGroup
	defer running.Wait()
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Clock: clock})
	defer queue.ShutDown()
	synced := make([]cache.InformerSynced, len(c.Sources))
	for i, source := range c.Sources {
		registration, err := source.Informer.AddEventHandler(source.handler(func(key cache.ObjectName) { queue.AddAfter(key, c.Pause) }))
		if ctx.Err() != nil {
			return nil // stopped while it starts: a shared informer takes no handlers then
		}
		if err != nil {
			return fmt.Errorf("%s: watch: %w", c.Name, err)
		}
		defer func() { _ = source.Informer.RemoveEventHandler(registration) }()
		synced[i] = registration.HasSynced
	}
	for _, informer := range c.Own {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	for range c.Workers {
		running.Go(func() { c.work(ctx, log, queue) })
	}
	<-ctx.Done()
	return nil
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
			if s.Same != nil && s.Same(before, now) {
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

// forget drops what is known about an owner that is gone.
func (s Source) forget(obj any) {
	if o, ok := obj.(metav1.Object); ok {
		for _, ledger := range s.Ledgers {
			ledger.Forget(o.GetUID())
		}
	}
}

func (c *Controller) work(ctx context.Context, log *slog.Logger, queue workqueue.TypedRateLimitingInterface[cache.ObjectName]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		switch again, err := c.Reconcile(ctx, key); {
		case err == nil:
			queue.Forget(key)
			if again > 0 {
				queue.AddAfter(key, again)
			}
		case ctx.Err() != nil:
		case ordinary(err):
			queue.AddRateLimited(key)
		default:
			log.WarnContext(ctx, "not reconciled", "controller", c.Name, "object", key, "error", err)
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}

// IgnoreNotFound is nil for an error that says that the object is gone.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ordinary tells of an error that only means that the cache was behind.
func ordinary(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}
