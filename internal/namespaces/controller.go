// Package namespaces takes terminating namespaces apart: it deletes what they
// contain and then lets them go (R21, R22).
//
// A namespace that is deleted stays, with phase Terminating, while spec.finalizers
// holds the token "kubernetes", which is ours. From then on admission refuses
// new objects in it. The way of one namespace through this package:
//
//		watch event: pending ──▶ queue of names ──▶ pass ──▶ Wait: again, with back-off
//		                              ▲               │
//		Changed: something went ──────┘               └────▶ Finalize: the token goes, so the namespace does
//
//	 1. A worker takes a name and reads the namespace anew. Not being deleted, or
//	    without our token: nothing to do (NS-04, NS-08).
//	 2. The resource types are discovered after the namespace was seen terminating,
//	    so that the type of an object created a moment ago is among them.
//	 3. One pass asks Next, again and again, what to do: read types, delete what is
//	    active in them, wave after wave: pods; everything else; RBAC and
//	    NetworkPolicies. It stops at the first wave that is not empty (plan.go).
//	 4. A pass that leaves something writes why into the conditions and comes again,
//	    after 20 ms at first and up to 5 s when nothing moves. Changed wakes it sooner.
//	 5. A pass that found nothing, not even something to delete, removes the token,
//	    conditioned on the uid and resourceVersion that it read in step 1.
//
// Everything that a pass learns is forgotten when it ends; what is kept between
// passes (termination) only tunes when to look again. A pass deletes a page of
// each type at most, so that no namespace holds a worker for long: one that
// hangs, or is huge, does not starve the others.
//
// There is no delay before the first pass. What upstream's 5 s wait for, creates
// in flight, is what the second look is for; Config.Settle brings the wait back
// for servers that need it. This package does not remove finalizers of contents,
// does not force anything, and does not decide which namespaces may be deleted.
package namespaces

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
)

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Second
	// catalogueAge bounds how long a namespace that hangs is looked at with old knowledge of the resource types.
	catalogueAge = 30 * time.Second

	// never, as the time of the next pass: we have nothing more to do with the namespace.
	never time.Duration = -1
)

// Config is what a controller needs. Client and Metadata are required; the
// zero value of everything else is a good choice.
type Config struct {
	// Client watches, reads, updates the status of, and finalizes namespaces.
	Client kubernetes.Interface
	// Metadata lists and deletes their contents; it never sees more than metadata.
	Metadata metadata.Interface
	// Catalogue names the resource types. Nil: the discovery of Client.
	Catalogue Catalogue
	// Workers is how many namespaces are worked on at a time. Zero: 10.
	Workers int
	// Parallel is how many requests one pass sends at a time. Zero: 16.
	Parallel int
	// RequestTimeout bounds one request, so that a type whose server hangs costs that long. Zero: 10 s.
	RequestTimeout time.Duration
	// Order is the order in which contents go. Zero: pods, everything else, RBAC and NetworkPolicies.
	Order Order
	// Settle is the time a namespace is kept at least, for API servers whose
	// admission or discovery lag behind one another. Contents go meanwhile. Zero: none.
	Settle time.Duration
	// Logger. Nil: slog.Default().
	Logger *slog.Logger
	// Clock. Nil: the real one.
	Clock clock.PassiveClock
}

// Controller removes the contents of terminating namespaces, and then the namespaces.
type Controller struct {
	namespaces corev1client.NamespaceInterface
	informer   cache.SharedIndexInformer
	catalogue  *sharedCatalogue
	contents   contents
	workers    int
	order      Order
	settle     time.Duration
	log        *slog.Logger
	clock      clock.PassiveClock

	queue   workqueue.TypedDelayingInterface[string] // names of namespaces
	backoff workqueue.TypedRateLimiter[string]

	mu           sync.Mutex
	terminations map[string]*termination // by name of the namespace; guarded by mu
}

// termination is what is remembered of a terminating namespace between its
// passes. The queue gives a name to one worker at a time; that one owns it.
type termination struct {
	uid types.UID
	// since is when this process saw it terminating first.
	since time.Time
	// rediscover: the next pass needs a discovery that begins after now.
	rediscover bool
	// last is how far the last pass came.
	last Wait
}

// New checks the config and fills in the defaults.
func New(config Config) (*Controller, error) {
	if config.Client == nil || config.Metadata == nil {
		return nil, errors.New("namespaces: Client and Metadata are required")
	}
	if config.Workers < 0 || config.Parallel < 0 || config.RequestTimeout < 0 || config.Settle < 0 {
		return nil, errors.New("namespaces: Workers, Parallel, RequestTimeout and Settle must not be negative")
	}
	if config.Workers == 0 {
		config.Workers = 10
	}
	if config.Parallel == 0 {
		config.Parallel = 16
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
	informer := coreinformers.NewNamespaceInformer(config.Client, 0, cache.Indexers{})
	if err := informer.SetTransform(essentials); err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	return &Controller{
		namespaces: config.Client.CoreV1().Namespaces(),
		informer:   informer,
		catalogue:  shareCatalogue(config.Catalogue, config.Clock, catalogueAge),
		contents:   contents{client: config.Metadata, parallel: config.Parallel, timeout: config.RequestTimeout},
		workers:    config.Workers,
		order:      config.Order,
		settle:     config.Settle,
		log:        config.Logger,
		clock:      config.Clock,

		queue:        workqueue.NewTypedDelayingQueue[string](),
		backoff:      workqueue.NewTypedItemExponentialFailureRateLimiter[string](minBackoff, maxBackoff),
		terminations: map[string]*termination{},
	}, nil
}

// Run works until ctx ends, and returns when all it started has ended. A controller runs once.
func (c *Controller) Run(ctx context.Context) error {
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.observe,
		UpdateFunc: func(_, now any) { c.observe(now) },
		DeleteFunc: c.observeDeleted,
	})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { c.informer.RunWithContext(ctx) })
	for range c.workers {
		running.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

// WaitForSync waits until the controller has seen the namespaces that there are, or ctx
// ends. It returns the error of ctx then.
func (c *Controller) WaitForSync(ctx context.Context) error {
	select {
	case <-c.informer.HasSyncedChecker().Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Changed tells that an object of the namespace was deleted or changed, for
// callers that have a feed of that: what a pass waits for may have happened.
func (c *Controller) Changed(namespace string) {
	c.mu.Lock()
	_, terminating := c.terminations[namespace]
	c.mu.Unlock()
	if !terminating {
		return
	}
	// Not at once: what changes together shall cost one pass.
	c.queue.AddAfter(namespace, minBackoff)
}

// observe takes in a watch event. A namespace that we work on already comes
// again by itself; our own writes to its status must not make it come sooner.
func (c *Controller) observe(object any) {
	ns, ok := object.(*corev1.Namespace)
	if !ok || !Pending(ns) {
		return
	}
	if _, isNew := c.termination(ns); isNew {
		c.queue.Add(ns.Name)
	}
}

func (c *Controller) observeDeleted(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.forget(key)
	}
}

// termination finds what is remembered of a namespace, or begins to remember.
// Another uid under the same name is another namespace.
func (c *Controller) termination(ns *corev1.Namespace) (_ *termination, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, known := c.terminations[ns.Name]; known && t.uid == ns.UID {
		return t, false
	}
	t := &termination{uid: ns.UID, since: c.clock.Now(), rediscover: true}
	c.terminations[ns.Name] = t
	return t, true
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	delete(c.terminations, name)
	c.mu.Unlock()
	c.backoff.Forget(name)
}

// essentials keeps of a namespace what observe looks at.
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

func (c *Controller) work(ctx context.Context) {
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		c.reconcile(ctx, name)
		c.queue.Done(name)
	}
}

// reconcile runs one pass and says when the next one is due.
func (c *Controller) reconcile(ctx context.Context, name string) {
	after, err := c.pass(ctx, name)
	switch {
	case ctx.Err() != nil:
		return
	case apierrors.IsConflict(err):
		// Somebody else wrote the namespace since it was read (NS-07).
		c.log.DebugContext(ctx, "namespace changed meanwhile", "namespace", name, "error", err)
		after = c.backoff.When(name)
	case err != nil:
		c.log.WarnContext(ctx, "namespace not finished", "namespace", name, "error", err)
		after = c.backoff.When(name)
	case after == never:
		c.forget(name)
		return
	}
	c.queue.AddAfter(name, after)
}
