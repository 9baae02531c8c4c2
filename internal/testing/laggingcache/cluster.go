package laggingcache

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// retryAfter is the time after which a key whose reconciliation failed is retried.
const retryAfter = 10 * time.Millisecond

// Cluster is a server, controllers, and the caches between them. It is for one goroutine.
type Cluster struct {
	*Server
	*controller.Context

	Clock *clocktesting.FakeClock
	// Errors are the controllers' errors that neither a lagging cache nor the Fate of a request
	// explains.
	Errors []error

	// Adverse stalls caches for a while, and makes controllers reconcile keys without a reason.
	// Quiesce ends it.
	Adverse bool

	choose      histories.Choose
	controllers []*controller.Controller
	caches      map[string]cache.SharedIndexInformer // by resource
	shown       map[string]int                       // how many changes each cache shows
	due         map[work]time.Time
	seen        []work         // all keys that were ever due
	stalled     map[string]int // the number of further steps for which a cache is stalled
}

// work is a key that a controller is to reconcile.
type work struct {
	controller int
	key        cache.ObjectName
}

// New returns a cluster with the controllers that the constructors return. choose decides the
// order of events.
func New(begin time.Time, choose histories.Choose, constructors ...func(*controller.Context) (*controller.Controller, error)) (*Cluster, error) {
	c := &Cluster{Clock: clocktesting.NewFakeClock(begin), choose: choose, shown: map[string]int{}, due: map[work]time.Time{}, stalled: map[string]int{}}
	c.Server = newServer(c.Clock.Now)
	shared, err := controller.NewContext(c.client(), c.Clock, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	c.Context = shared
	for _, construct := range constructors {
		added, err := construct(shared)
		if err != nil {
			return nil, err
		}
		c.controllers = append(c.controllers, added)
	}
	c.caches = map[string]cache.SharedIndexInformer{
		"pods":                   shared.Informers.Pods.Informer(),
		"persistentvolumeclaims": shared.Informers.PersistentVolumeClaims.Informer(),
		"services":               shared.Informers.Services.Informer(),
		"endpoints":              shared.Informers.Endpoints.Informer(),
		"endpointslices":         shared.Informers.EndpointSlices.Informer(),
		"nodes":                  shared.Informers.Nodes.Informer(),
		"controllerrevisions":    shared.Informers.ControllerRevisions.Informer(),
		"deployments":            shared.Informers.Deployments.Informer(),
		"replicasets":            shared.Informers.ReplicaSets.Informer(),
		"statefulsets":           shared.Informers.StatefulSets.Informer(),
		"daemonsets":             shared.Informers.DaemonSets.Informer(),
		"devicetaintrules":       shared.Informers.DeviceTaintRules.Informer(),
		"resourceslices":         shared.Informers.ResourceSlices.Informer(),
		"resourceclaims":         shared.Informers.ResourceClaims.Informer(),
		"resourceclaimtemplates": shared.Informers.ResourceClaimTemplates.Informer(),
	}
	return c, nil
}

// Put writes an object, as a user, a scheduler or a kubelet does. The server fills in the
// metadata of a new one.
func Put[T object](c *Cluster, resource string, obj T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if obj.GetUID() == "" {
		obj.SetUID(uidOf(resource, c.revision+1))
		obj.SetCreationTimestamp(metav1.NewTime(c.now()))
		obj.SetGeneration(1)
	}
	stored, ok := c.putLocked(resource, obj).(T)
	if !ok {
		panic(fmt.Sprintf("%s holds no %T", resource, obj))
	}
	return stored
}

// Peek returns an object without copying it, or the zero value if the object does not exist. The
// object must not be changed. Peek is for Watch.
func Peek[T object](c *Cluster, resource, key string) T {
	obj, _ := c.objects[resource][key].(T)
	return obj
}

// Each calls f with every object of a resource, without copying. It is for Watch.
func Each[T object](c *Cluster, resource string, f func(T)) {
	for _, key := range slices.Sorted(maps.Keys(c.objects[resource])) {
		f(Peek[T](c, resource, key))
	}
}

// Remove removes an object for good.
func Remove[T object](c *Cluster, resource string, obj T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.objects[resource][keyOf(obj)]; was != nil {
		c.removeLocked(resource, was)
	}
}

// All returns copies of the objects of a resource, in the order of their names.
func All[T object](c *Cluster, resource string) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []T
	for _, key := range slices.Sorted(maps.Keys(c.objects[resource])) {
		if obj, ok := c.objects[resource][key].DeepCopyObject().(T); ok {
			list = append(list, obj)
		}
	}
	return list
}

// Step performs one step: an event reaches a cache, or a controller reconciles a key. It reports
// whether a step was possible.
func (c *Cluster) Step(ctx context.Context) bool {
	if c.Adverse {
		c.disturb()
	}
	var events []string
	for _, resource := range slices.Sorted(maps.Keys(c.caches)) {
		if c.stalled[resource]--; c.stalled[resource] < 0 && c.behind(resource) > 0 {
			events = append(events, resource)
		}
	}
	var keys []work
	for item, at := range c.due {
		if !at.After(c.Clock.Now()) {
			keys = append(keys, item)
		}
	}
	slices.SortFunc(keys, func(a, b work) int {
		if a.controller != b.controller {
			return a.controller - b.controller
		}
		return slices.Compare([]byte(a.key.String()), []byte(b.key.String()))
	})
	if len(events)+len(keys) == 0 {
		return false
	}
	if n := c.choose(len(events) + len(keys)); n < len(events) {
		c.deliver(events[n])
	} else {
		c.reconcile(ctx, keys[n-len(events)])
	}
	return true
}

// disturb sometimes stalls one of the caches, ends its watch, or makes a key due.
func (c *Cluster) disturb() {
	switch c.choose(20) { // the smallest choice does nothing, for shrinking
	case 16:
		resources := slices.Sorted(maps.Keys(c.caches))
		c.Relist(resources[c.choose(len(resources))])
	case 19:
		resources := slices.Sorted(maps.Keys(c.caches))
		c.stalled[resources[c.choose(len(resources))]] = c.choose(60)
	case 17, 18:
		if len(c.seen) > 0 {
			c.due[c.seen[c.choose(len(c.seen))]] = c.Clock.Now()
		}
	}
}

// Quiesce steps until no step is possible before time passes. It returns false if that takes too
// many steps.
func (c *Cluster) Quiesce(ctx context.Context) bool {
	c.Adverse = false
	clear(c.stalled)
	for range 10_000 {
		if !c.Step(ctx) {
			return true
		}
	}
	return false
}

// Rest lets controllers work and time pass until they have nothing to do for a while, or have done much. It returns false
// if one never stops.
func (c *Cluster) Rest(ctx context.Context, while time.Duration) bool {
	for range 50 {
		if !c.Quiesce(ctx) {
			return false
		}
		if !c.Wait(while) {
			break
		}
	}
	return true
}

// LoseCreation removes the first objects of a resource that a controller creates before its cache shows them: they have no
// event. Earlier attempts are refused, so that the creation need not change the status of the owner. Before the removal the
// controllers reconcile all their keys the given number of times.
func (c *Cluster) LoseCreation(ctx context.Context, resource string, reconciliations int) {
	c.Fate = func(verb, of, _ string) Fate {
		if verb == "create" && of == resource {
			return Refused
		}
		return Answered
	}
	c.Quiesce(ctx)
	c.Fate = nil
	for len(c.objects[resource]) == 0 && (c.Step(ctx) || c.Wait(time.Minute)) {
	}
	for range reconciliations {
		for _, item := range c.seen {
			c.reconcile(ctx, item)
		}
	}
	c.mu.Lock()
	for _, key := range slices.Sorted(maps.Keys(c.objects[resource])) {
		c.removeLocked(resource, c.objects[resource][key])
	}
	c.mu.Unlock()
	c.Relist(resource)
}

// Wait lets time pass until a controller has a key to reconcile, but at most the given time. It
// reports whether one has.
func (c *Cluster) Wait(most time.Duration) bool {
	limit := c.Clock.Now().Add(most)
	first := limit
	for _, at := range c.due {
		if at.Before(first) {
			first = at
		}
	}
	c.Clock.SetTime(first)
	return first.Before(limit)
}

func (c *Cluster) behind(resource string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.changes[resource]) - c.shown[resource]
}

// deliver brings the next event to a cache.
func (c *Cluster) deliver(resource string) {
	c.mu.Lock()
	event := c.changes[resource][c.shown[resource]]
	c.mu.Unlock()
	c.shown[resource]++
	c.show(resource, event)
}

// Relist brings a cache up to date as an informer does whose watch was down: each object has one event, and an object that
// was created and removed in the meantime has none.
func (c *Cluster) Relist(resource string) {
	c.mu.Lock()
	missed, version := c.changes[resource][c.shown[resource]:], strconv.Itoa(c.revision)
	c.mu.Unlock()
	c.shown[resource] += len(missed)
	store := c.caches[resource].GetIndexer()
	for i, event := range missed {
		again := func(later change) bool { return keyOf(later.object) == keyOf(event.object) }
		_, known, err := store.Get(event.object)
		if err == nil && (known || !event.gone) && !slices.ContainsFunc(missed[i+1:], again) {
			c.show(resource, event)
		}
	}
	if err := store.Replace(store.List(), version); err != nil {
		c.Errors = append(c.Errors, fmt.Errorf("list %s: %w", resource, err))
	}
}

// show applies one event to a cache, and brings the keys of its sources to the controllers.
func (c *Cluster) show(resource string, event change) {
	store := c.caches[resource].GetIndexer()
	before, known, err := store.Get(event.object)
	now := event.object.DeepCopyObject()
	switch {
	case err != nil:
	case event.gone:
		err = store.Delete(now)
	default:
		err = store.Update(now)
	}
	if err != nil {
		c.Errors = append(c.Errors, fmt.Errorf("deliver to the cache of %s: %w", resource, err))
		return
	}
	for i, listening := range c.controllers {
		for _, source := range listening.Sources {
			if source.Informer.GetIndexer() != store || known && !event.gone && source.Ignore != nil && source.Ignore(before, now) {
				continue
			}
			if known {
				c.add(i, source.Keys(before))
			}
			c.add(i, source.Keys(now))
		}
	}
}

func (c *Cluster) add(controller int, keys []cache.ObjectName) {
	for _, key := range keys {
		item := work{controller, key}
		c.due[item] = c.Clock.Now()
		if !slices.Contains(c.seen, item) {
			c.seen = append(c.seen, item)
		}
	}
}

func (c *Cluster) reconcile(ctx context.Context, item work) {
	delete(c.due, item)
	running := c.controllers[item.controller]
	again, err := running.Reconcile(ctx, item.key)
	if err != nil {
		again = retryAfter
		if !isExpected(err) {
			c.Errors = append(c.Errors, fmt.Errorf("%s: %s: %w", running.Name, item.key, err))
		}
	}
	if again > 0 {
		c.due[item] = c.Clock.Now().Add(again)
	}
}
