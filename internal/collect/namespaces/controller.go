// Package namespaces is the namespace controller: it deletes the contents of terminating
// namespaces and then removes its finalizer from them (R21, R22).
//
// A deleted namespace stays, with phase Terminating, while spec.finalizers has the namespace
// controller's entry "kubernetes", called our finalizer below. From then on admission rejects new
// objects in it. How one namespace passes through this package:
//
//		watch event: pending ──▶ queue of names ──▶ sync ──▶ Wait: again, with back-off
//		                              ▲               │
//		Changed: an object is gone ───┘               └────▶ Finalize: our finalizer is removed
//
//	 1. A worker takes a name and reads the namespace again. If it is not being deleted, or
//	    does not have our finalizer, there is nothing to do (NS-04, NS-08).
//	 2. The resource types are discovered after the namespace was seen terminating,
//	    so that they include the type of an object created a moment ago.
//	 3. One sync calls Next for each step: list types, delete the active objects in
//	    them, stage after stage. A stage is a set of resources that are deleted together,
//	    once the stage before it is empty: pods; everything else; RBAC and NetworkPolicies.
//	    A sync stops at the first stage that is not empty (plan.go).
//	 4. A sync that leaves objects behind writes the reason into the conditions. The next
//	    one comes after 20 ms at first, and up to 5 s when nothing moves. Changed makes it
//	    come sooner.
//	    Objects whose deletion was refused because they are protected (R28) are parked
//	    (parked.go): they are not deleted again until they change, nothing else is left, or a
//	    minute is over.
//	 5. A sync that found no objects, and deleted none, removes our finalizer,
//	    conditioned on the uid and resourceVersion that it read in step 1.
//
// A sync forgets its results when it ends; the state between syncs (termination) only determines
// when the next sync is due. A sync deletes a page of each type at most, so that no namespace
// occupies a worker for long: a namespace that hangs, or is huge, does not starve the others.
//
// There is no delay before the first sync. Upstream waits 5 s for creates in flight; on our server
// the second sync finds those. On other servers Config.Settle keeps the namespace for as long.
// This package does not remove finalizers of contents, does not force deletions, and does
// not decide which namespaces may be deleted.
//
// The loop is not that of package controller: the back-off of a namespace ends when its
// contents become fewer, not when a sync succeeds, and an update of a namespace that is
// being worked on must not make its next sync come sooner.
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/collect/refused"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Second
	// catalogueAge is the maximum age of the resource types with which a namespace is synced again.
	catalogueAge = 30 * time.Second

	// never, as the time until the next sync, means that there is nothing more to do.
	never time.Duration = -1
)

// Config configures a Controller. Client and Metadata are required; everything else has
// a default.
type Config struct {
	// Client watches, reads, updates the status of, and finalizes namespaces.
	Client kubernetes.Interface
	// Metadata lists and deletes their contents; it never sees more than metadata.
	Metadata metadata.Interface
	// Catalogue returns the resource types. Nil: the discovery of Client.
	Catalogue Catalogue
	// Workers is the number of namespaces that are synced concurrently. Zero: 10.
	Workers int
	// Concurrency is the number of concurrent requests of one sync. Zero: 16.
	Concurrency int
	// RequestTimeout bounds one request, and so the cost of a type whose server hangs. Zero: 10 s.
	RequestTimeout time.Duration
	// Order is the order in which contents are deleted. Zero: the default order.
	Order Order
	// Settle is the minimum time that a namespace is kept, for API servers whose admission or
	// discovery lag behind one another. Contents are deleted meanwhile. Zero: no minimum.
	Settle time.Duration
	// Logger is the logger. Nil: slog.Default().
	Logger *slog.Logger
	// Clock is the clock. Nil: the system clock.
	Clock clock.PassiveClock

	contact    *contact                        // observes the requests of Client and Metadata; nil: nobody does
	confirming corev1client.NamespaceInterface // nil: the one of Client
}

// Controller deletes the contents of terminating namespaces, and then finalizes them. Create one
// with New.
type Controller struct {
	lifecycle  lifecycle.Lifecycle
	leading    atomic.Bool // Lead is under way
	namespaces corev1client.NamespaceInterface
	confirming corev1client.NamespaceInterface // reads a namespace again
	contact    *contact
	informer   cache.SharedIndexInformer
	catalogue  *sharedCatalogue
	contents   contents
	workers    int
	order      Order
	settle     time.Duration
	log        *slog.Logger
	failures   *pace.Failures
	clock      clock.PassiveClock

	backoff workqueue.TypedRateLimiter[string]

	mu           sync.Mutex
	queue        queue                   // guarded by mu; nil between two terms
	terminations map[string]*termination // by namespace name; guarded by mu
	syncing      int                     // guarded by mu; how many syncs are under way
	syncs        int                     // guarded by mu; how many have begun
	refused      refused.List            // guarded by mu; the contents that the server refuses to delete
	stories      *storybook.Book         // guarded by mu; records the refusals, too; nil: none
}

// termination is the state of a terminating namespace that is kept between its syncs. The queue
// gives a name to one worker at a time, which owns it.
type termination struct {
	uid types.UID
	// since is when this process first saw it terminating.
	since time.Time
	// rediscover means that the next sync needs a discovery that begins after now.
	rediscover bool
	// last is the progress of the last sync.
	last Wait
	// refused are the refusals to delete objects that are protected (R28), by the objects' UIDs.
	refused map[types.UID]protection.Held
	// lacks means that something is gone since these objects were tried, released when they were last tried because of
	// that.
	lacks    bool
	released time.Time
	// reported are the objects in Controller.refused, with the times of their last refusals. Guarded by Controller.mu.
	reported map[ownership.UID]time.Time
	// staying is the number of objects that the server has refused to delete in this sync, and refuses until somebody
	// acts. Guarded by Controller.mu.
	staying int
	// held means that all objects the last sync left wait for other controllers or users (Wait.held), and that nothing in
	// the namespace has changed since. Guarded by Controller.mu.
	held bool
}

// New validates the config, fills in the defaults and returns a controller.
func New(config Config) (*Controller, error) {
	if config.Client == nil || config.Metadata == nil {
		return nil, errors.New("namespaces: Client and Metadata are required")
	}
	if config.Workers < 0 || config.Concurrency < 0 || config.RequestTimeout < 0 || config.Settle < 0 {
		return nil, errors.New("namespaces: Workers, Concurrency, RequestTimeout and Settle must not be negative")
	}
	if config.Workers == 0 {
		config.Workers = 10
	}
	if config.Concurrency == 0 {
		config.Concurrency = 16
	}
	if config.RequestTimeout == 0 {
		config.RequestTimeout = 10 * time.Second
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Catalogue == nil {
		config.Catalogue = Discover(config.Client.Discovery(), config.Metadata, config.Clock)
	}
	if config.confirming == nil {
		config.confirming = config.Client.CoreV1().Namespaces()
	}
	informer := coreinformers.NewNamespaceInformer(config.Client, 0, cache.Indexers{})
	if err := informer.SetTransform(essentials); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	return &Controller{
		lifecycle:  lifecycle.New(),
		namespaces: config.Client.CoreV1().Namespaces(),
		confirming: config.confirming,
		contact:    config.contact,
		informer:   informer,
		catalogue:  shareCatalogue(config.Catalogue, config.Clock, catalogueAge),
		contents:   contents{client: config.Metadata, concurrency: config.Concurrency, timeout: config.RequestTimeout},
		workers:    config.Workers,
		order:      config.Order,
		settle:     config.Settle,
		log:        config.Logger,
		failures:   pace.NewFailures(config.Logger, config.Clock),
		clock:      config.Clock,

		backoff:      workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
		terminations: map[string]*termination{},
	}, nil
}

// Order returns the order in which the controller deletes contents.
func (c *Controller) Order() Order { return c.order }

// Run runs the controller until ctx ends, and returns when everything that it started has ended. It
// waits for a server that cannot be reached. A second call returns lifecycle.ErrAlreadyStarted. It is Observe and Lead
// at the same time.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.lifecycle.Start(); err != nil {
		return fmt.Errorf("namespace controller: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.observeAll(ctx) })
	group.Go(func() error { return c.Lead(ctx) })
	return group.Wait()
}

// Observe keeps the controller's knowledge of the namespaces up to date until ctx ends, and changes nothing. It is for a
// replica that stands by, and for the leader of several replicas beside Lead. A second call, or one after Run, returns
// lifecycle.ErrAlreadyStarted.
func (c *Controller) Observe(ctx context.Context) error {
	if err := c.lifecycle.Start(); err != nil {
		return fmt.Errorf("namespace controller: %w", err)
	}
	return c.observeAll(ctx)
}

// observeAll watches the namespaces until ctx ends.
func (c *Controller) observeAll(ctx context.Context) error {
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.observe,
		UpdateFunc: func(_, now any) { c.observe(now) },
		DeleteFunc: c.observeDeleted,
	})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	c.informer.RunWithContext(ctx)
	return nil
}

// Changed notifies the controller that an object in the namespace was deleted or has changed, for
// callers that watch the contents: the change may be the one that a sync waits for.
func (c *Controller) Changed(namespace string) {
	c.mu.Lock()
	t, terminating := c.terminations[namespace]
	if terminating {
		t.held = false
	}
	c.mu.Unlock()
	if !terminating {
		return
	}
	// Not at once: changes that arrive together should cause a single sync.
	c.enqueue(namespace, minBackoff)
}

// observe enqueues a namespace that has begun to terminate. A namespace that is being worked on
// already has its next sync scheduled, which our own writes to its status must not bring forward.
func (c *Controller) observe(object any) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return
	}
	if !Pending(ns) {
		c.forgetFormer(ns)
		return
	}
	// Under one lock: a term that began in between would have the namespace twice.
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isNew := c.terminationLocked(ns); isNew && c.queue != nil {
		c.queue.Add(ns.Name)
	}
}

func (c *Controller) observeDeleted(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.forget(key)
	}
}

// forgetFormer forgets a namespace that was deleted if another one has its name: after a gap of the watch, both events
// arrive as one update.
func (c *Controller) forgetFormer(now *corev1.Namespace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, isKnown := c.terminations[now.Name]; isKnown && t.uid != now.UID {
		c.forgetLocked(now.Name)
	}
}

// termination is terminationLocked for callers that do not have the lock.
func (c *Controller) termination(ns *corev1.Namespace) (_ *termination, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terminationLocked(ns)
}

// terminationLocked returns the state of a namespace, and reports whether it is new. Another UID under
// the same name is another namespace.
func (c *Controller) terminationLocked(ns *corev1.Namespace) (_ *termination, isNew bool) {
	if t, known := c.terminations[ns.Name]; known && t.uid == ns.UID {
		return t, false
	}
	c.forgetRefusedLocked(c.terminations[ns.Name])
	t := &termination{uid: ns.UID, since: c.clock.Now(), rediscover: true}
	c.terminations[ns.Name] = t
	return t, true
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(name)
}

func (c *Controller) forgetLocked(name string) {
	c.forgetRefusedLocked(c.terminations[name])
	delete(c.terminations, name)
	c.backoff.Forget(name)
}

// essentials drops everything of a namespace that observe does not read, to keep the cache small.
func essentials(object any) (any, error) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: ns.Name, UID: ns.UID, ResourceVersion: ns.ResourceVersion, DeletionTimestamp: ns.DeletionTimestamp,
		},
		Spec: corev1.NamespaceSpec{Finalizers: ns.Spec.Finalizers},
	}, nil
}

func (c *Controller) work(ctx context.Context, queue queue) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		c.began(name)
		c.reconcile(ctx, name)
		c.ended()
		queue.Done(name)
	}
}

// reconcile runs one sync and schedules the next.
func (c *Controller) reconcile(ctx context.Context, name string) {
	after, err := c.sync(ctx, name)
	switch {
	case ctx.Err() != nil:
		return
	case apierrors.IsConflict(err):
		// The namespace has been written since it was read (NS-07).
		c.log.DebugContext(ctx, "namespace has changed since it was read", "namespace", name, "error", err)
		after = c.backoff.When(name)
	case err != nil:
		c.failures.Warn(ctx, "namespace sync failed", name, err, "namespace", name)
		after = c.backoff.When(name)
	case after == never:
		c.forget(name)
		return
	}
	c.enqueue(name, after)
}
