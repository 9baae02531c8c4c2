package definitions

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector"
	refusedobjects "github.com/coppice-dev/coppice/internal/collect/refused"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Config configures a Controller. All fields are required, except for Events.
type Config struct {
	// Informer is the server's informer of definitions.
	Informer cache.SharedIndexInformer
	Client   apiextensionsclient.CustomResourceDefinitionsGetter
	Events   Events // nil: no Events are written
	Clock    clock.WithTicker
	Log      *slog.Logger
}

// Events writes Events.
type Events interface {
	Warn(ctx context.Context, regarding ownership.Object, reason, message string) error
}

// Controller keeps the refusals to delete instances of definitions.
type Controller struct {
	config Config
	queue  workqueue.TypedDelayingInterface[string] // names of definitions

	mu      sync.Mutex
	refused refusedobjects.List       // guarded by mu, like all below
	uids    map[string]ownership.UID  // of the refused definitions, by name
	seen    map[ownership.UID]attempt // the last refused attempt of each
	stories *storybook.Book           // records the refusals, too; nil: none
}

// attempt is an attempt to delete the instances of a definition.
type attempt struct {
	version string    // of the definition
	until   time.Time // when the server is made to try again
}

// New returns a controller.
func New(config Config) *Controller {
	return &Controller{
		config: config, uids: map[string]ownership.UID{}, seen: map[ownership.UID]attempt{},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: config.Clock}),
	}
}

// Run watches the definitions until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	add := func(object any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			c.queue.Add(name)
		}
	}
	registration, err := c.config.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, now any) { add(now) }, DeleteFunc: add,
	})
	if err != nil {
		return fmt.Errorf("watch the definitions: %w", err)
	}
	defer func() { _ = c.config.Informer.RemoveEventHandler(registration) }()
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	for {
		name, isShutDown := c.queue.Get()
		if isShutDown {
			return nil
		}
		if after := c.sync(ctx, name); after > 0 {
			c.queue.AddAfter(name, after)
		}
		c.queue.Done(name)
	}
}

// sync looks at a definition. It returns the time after which to look again; 0 if a change tells.
func (c *Controller) sync(ctx context.Context, name string) time.Duration {
	object, _, _ := c.config.Informer.GetStore().GetByKey(name) // never an error
	definition, exists := object.(*apiextensionsv1.CustomResourceDefinition)
	if !exists {
		c.forget(name, "")
		return 0
	}
	c.forget(name, ownership.UID(definition.UID)) // another one had the name
	switch state, r := progressOf(definition); state {
	case over:
		c.forget(name, "")
	case trying:
	case refused:
		return c.refuse(ctx, definition, r)
	}
	return 0
}

// refuse records a refusal, and makes the server try again when it is time. It returns the time until then.
func (c *Controller) refuse(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, r refusal.Refusal) time.Duration {
	o, now := objectOf(definition), c.config.Clock.Now()
	c.mu.Lock()
	last, known := c.seen[o.UID]
	isNew, isTold := last.version != o.ResourceVersion, false
	if isNew {
		c.refused.Add(o, report.ActionDeleteInstances, r, now)
		last = attempt{o.ResourceVersion, now.Add(retryAfter)}
		c.uids[definition.Name], c.seen[o.UID] = o.UID, last
		isTold = r.By != refusal.ByProtection && c.refused.IsLasting(o.UID, r, now) && c.refused.Tell(o.UID, r, now)
		if c.stories != nil {
			c.stories.Refused(&o, "", r, now)
		}
	}
	c.mu.Unlock()
	if !known {
		c.config.Log.WarnContext(ctx, "refused", "object", definition.Name, "action", string(report.ActionDeleteInstances), "by", string(r.By), "reason", r.String())
	}
	if isTold {
		c.tell(ctx, o, r)
	}
	if wait := last.until.Sub(now); wait > 0 {
		return wait
	}
	c.retry(ctx, definition)
	return retryAfter
}

func (c *Controller) tell(ctx context.Context, o ownership.Object, r refusal.Refusal) {
	if c.config.Events == nil {
		return
	}
	if err := c.config.Events.Warn(ctx, o, collector.ReasonRefused, "the API server cannot delete its instances: "+r.String()); err != nil {
		c.config.Log.WarnContext(ctx, "event not written", "object", o.Name, "reason", collector.ReasonRefused, "error", err)
	}
}

// retry makes the server try again. After a conflict, the definition has changed: the server tries, too.
func (c *Controller) retry(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) {
	_, err := c.config.Client.CustomResourceDefinitions().UpdateStatus(ctx, retried(definition), metav1.UpdateOptions{})
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return
	}
	c.config.Log.WarnContext(ctx, "not tried again", "object", definition.Name, "error", err)
}

// forget forgets the refusal of the definition with a name, unless it has a UID.
func (c *Controller) forget(name string, unless ownership.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, known := c.uids[name]
	if !known || uid == unless {
		return
	}
	if c.stories != nil {
		c.stories.RefusalEnded(uid, false, c.config.Clock.Now())
	}
	c.refused.Forget(uid)
	delete(c.uids, name)
	delete(c.seen, uid)
}

// RecordIn records the refusals in stories, too, until stop is called.
func (c *Controller) RecordIn(stories *storybook.Book) (stop func()) {
	set := func(stories *storybook.Book) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stories = stories
	}
	set(stories)
	return func() { set(nil) }
}

// Refused returns the definitions whose instances the server cannot delete, and their number by refuser.
func (c *Controller) Refused() ([]report.RefusedObject, []report.RefusedCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused.Status()
}
