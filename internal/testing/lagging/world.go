package lagging

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
)

// pause is after what time a key is tried again that failed.
const pause = 10 * time.Millisecond

// World is a server, controllers, and the caches between them. It is for one goroutine.
type World struct {
	*Server
	*controller.World

	Clock *clocktesting.FakeClock
	// Wrong are errors of controllers that are neither conflicts nor the test's doing.
	Wrong []error

	// Adverse makes caches stand still for a while, and controllers look at keys without a
	// reason. Rest ends it.
	Adverse bool

	rand        *rand.Rand
	controllers []*controller.Controller
	caches      map[string]cache.SharedIndexInformer // by resource
	shown       map[string]int                       // how many changes a cache shows
	due         map[work]time.Time
	seen        []work         // all that were ever due
	still       map[string]int // for how many steps yet a cache stands still
}

// work is a key that a controller is to look at.
type work struct {
	controller int
	key        cache.ObjectName
}

// New makes a world with the controllers that the functions make. rand decides in what
// order things happen.
func New(begin time.Time, rand *rand.Rand, makers ...func(*controller.World) (*controller.Controller, error)) (*World, error) {
	w := &World{Clock: clocktesting.NewFakeClock(begin), rand: rand, shown: map[string]int{}, due: map[work]time.Time{}, still: map[string]int{}}
	w.Server = newServer(w.Clock.Now)
	frame, err := controller.NewWorld(w.client(), w.Clock, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	w.World = frame
	for _, maker := range makers {
		c, err := maker(frame)
		if err != nil {
			return nil, err
		}
		w.controllers = append(w.controllers, c)
	}
	w.caches = map[string]cache.SharedIndexInformer{
		"pods":                   frame.Shared.Core().V1().Pods().Informer(),
		"persistentvolumeclaims": frame.Shared.Core().V1().PersistentVolumeClaims().Informer(),
		"nodes":                  frame.Shared.Core().V1().Nodes().Informer(),
		"controllerrevisions":    frame.Shared.Apps().V1().ControllerRevisions().Informer(),
		"statefulsets":           frame.Shared.Apps().V1().StatefulSets().Informer(),
		"daemonsets":             frame.Shared.Apps().V1().DaemonSets().Informer(),
	}
	return w, nil
}

// Put writes an object, as a user, a scheduler or a kubelet does. A new one gets what the
// server gives it.
func Put[T object](w *World, resource string, obj T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj.GetUID() == "" {
		obj.SetUID(uidOf(resource, w.revision+1))
		obj.SetCreationTimestamp(metav1.NewTime(w.now()))
		obj.SetGeneration(1)
	}
	stored, ok := w.putLocked(resource, obj).(T)
	if !ok {
		panic(fmt.Sprintf("%s holds no %T", resource, obj))
	}
	return stored
}

// Peek is an object as it is; the zero value when there is none. It is for Watch, and not
// to be changed.
func Peek[T object](w *World, resource, key string) T {
	obj, _ := w.objects[resource][key].(T)
	return obj
}

// Each calls f with every object of a resource as it is. It is for Watch.
func Each[T object](w *World, resource string, f func(T)) {
	for _, key := range slices.Sorted(maps.Keys(w.objects[resource])) {
		f(Peek[T](w, resource, key))
	}
}

// Remove removes an object for good.
func Remove[T object](w *World, resource string, obj T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was := w.objects[resource][keyOf(obj)]; was != nil {
		w.removeLocked(resource, was)
	}
}

// All are the objects of a resource that there are, in the order of their names. They
// are copies.
func All[T object](w *World, resource string) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []T
	for _, key := range slices.Sorted(maps.Keys(w.objects[resource])) {
		if obj, ok := w.objects[resource][key].DeepCopyObject().(T); ok {
			list = append(list, obj)
		}
	}
	return list
}

// Step lets one thing happen: an event comes to a cache, or a controller works on a key.
// It tells whether there was anything that could.
func (w *World) Step(ctx context.Context) bool {
	if w.Adverse {
		w.disturb()
	}
	var events []string
	for _, resource := range slices.Sorted(maps.Keys(w.caches)) {
		if w.still[resource]--; w.still[resource] < 0 && w.behind(resource) > 0 {
			events = append(events, resource)
		}
	}
	var keys []work
	for item, at := range w.due {
		if !at.After(w.Clock.Now()) {
			keys = append(keys, item)
		}
	}
	slices.SortFunc(keys, func(a, b work) int {
		if a.controller != b.controller {
			return a.controller - b.controller
		}
		return slices.Compare([]byte(a.key.String()), []byte(b.key.String()))
	})
	switch n := w.rand.IntN(max(len(events)+len(keys), 1)); {
	case n < len(events):
		w.deliver(events[n])
	case len(keys) > 0:
		w.reconcile(ctx, keys[n-len(events)])
	default:
		return false
	}
	return true
}

// disturb stops one of the caches, or makes a key due.
func (w *World) disturb() {
	switch w.rand.IntN(20) {
	case 0:
		resources := slices.Sorted(maps.Keys(w.caches))
		w.still[resources[w.rand.IntN(len(resources))]] = w.rand.IntN(60)
	case 1, 2:
		if len(w.seen) > 0 {
			w.due[w.seen[w.rand.IntN(len(w.seen))]] = w.Clock.Now()
		}
	}
}

// Rest is Step until nothing can happen before time passes, or until it does not end.
func (w *World) Rest(ctx context.Context) bool {
	w.Adverse = false
	clear(w.still)
	for range 10_000 {
		if !w.Step(ctx) {
			return true
		}
	}
	return false
}

// Soon lets time pass until a controller has something to look at, but not longer than
// most. It tells whether one has.
func (w *World) Soon(most time.Duration) bool {
	limit := w.Clock.Now().Add(most)
	first := limit
	for _, at := range w.due {
		if at.Before(first) {
			first = at
		}
	}
	w.Clock.SetTime(first)
	return first.Before(limit)
}

func (w *World) behind(resource string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.changes[resource]) - w.shown[resource]
}

// deliver brings one event to a cache, and its keys to the controllers.
func (w *World) deliver(resource string) {
	w.mu.Lock()
	event := w.changes[resource][w.shown[resource]]
	w.mu.Unlock()
	w.shown[resource]++
	store := w.caches[resource].GetIndexer()
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
		w.Wrong = append(w.Wrong, fmt.Errorf("deliver to the cache of %s: %w", resource, err))
		return
	}
	for i, c := range w.controllers {
		for _, source := range c.Sources {
			if source.Informer.GetIndexer() != store || known && !event.gone && source.Same != nil && source.Same(before, now) {
				continue
			}
			if known {
				w.add(i, source.Keys(before))
			}
			w.add(i, source.Keys(now))
		}
	}
}

func (w *World) add(controller int, keys []cache.ObjectName) {
	for _, key := range keys {
		item := work{controller, key}
		w.due[item] = w.Clock.Now()
		if !slices.Contains(w.seen, item) {
			w.seen = append(w.seen, item)
		}
	}
}

func (w *World) reconcile(ctx context.Context, item work) {
	delete(w.due, item)
	c := w.controllers[item.controller]
	again, err := c.Reconcile(ctx, item.key)
	if err != nil {
		again = pause
		if !expected(err) {
			w.Wrong = append(w.Wrong, fmt.Errorf("%s: %s: %w", c.Name, item.key, err))
		}
	}
	if again > 0 {
		w.due[item] = w.Clock.Now().Add(again)
	}
}
