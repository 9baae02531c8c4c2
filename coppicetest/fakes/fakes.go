// Package fakes applies the rules of deletion and collection to fakes: to client-go's object
// tracker and to controller-runtime's fake client, which keep objects in maps and know no cascade.
// There are no goroutines and no time: a Collector makes one change with each Step, always the same
// one in the same state, and Run makes all until nothing changes any more.
//
//	builder := fake.NewClientBuilder().WithInterceptorFuncs(fakes.Interceptor())
//	client := builder.Build()
//	…
//	steps, err := fakes.ForClient(client).Run(ctx)
//
// The rules are those of the collector and the API server: packages verdict and deletion of
// Coppice, whose module this one therefore requires. What fakes lack is put in: UIDs, finalizers
// for the policies foreground and orphan, and namespaces that stay until they are empty.
//
// The flow of a Step: all objects are read (Store), become an ownership graph, and are decided
// about in the order of their kinds and names; the first decision that changes something is
// carried out.
package fakes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Store is what a Collector works on.
type Store interface {
	// Kinds returns the kinds that are served.
	Kinds() []schema.GroupVersionKind
	// Objects returns the objects of a kind.
	Objects(ctx context.Context, kind schema.GroupVersionKind) ([]runtime.Object, error)
	// Write replaces an object. One that is being deleted, and has no finalizers left, is removed.
	Write(ctx context.Context, kind schema.GroupVersionKind, object runtime.Object) error
	// Mark replaces an object that was not being deleted by one that is, and has finalizers.
	Mark(ctx context.Context, kind schema.GroupVersionKind, object runtime.Object) error
	// Remove removes an object.
	Remove(ctx context.Context, kind schema.GroupVersionKind, object runtime.Object) error
}

// Step is one change.
type Step struct {
	Object string // "ReplicaSet.apps shop/web"
	Action string // in words: "delete Background: owners absent: Deployment.apps web"
}

// String returns both.
func (s Step) String() string { return s.Object + ": " + s.Action }

// ErrEndless is the error of Run when the changes do not come to an end: something makes anew what
// is collected.
var ErrEndless = errors.New("collection does not come to rest")

// mostSteps bounds Run.
const mostSteps = 100_000

// Collector collects what is in a Store. Make one with ForClient or ForTracker, or from a Store of
// your own.
type Collector struct{ Store Store }

// Run makes changes until nothing is left to do, and returns them.
func (c Collector) Run(ctx context.Context) ([]Step, error) {
	var steps []Step
	for range mostSteps {
		step, changed, err := c.Step(ctx)
		if err != nil || !changed {
			return steps, err
		}
		steps = append(steps, step)
	}
	return steps, ErrEndless
}

// Step makes the next change. It reports whether there was one.
func (c Collector) Step(ctx context.Context) (step Step, changed bool, err error) {
	s, err := c.read(ctx)
	if err != nil {
		return Step{}, false, err
	}
	for _, o := range s.objects {
		action, err := s.change(ctx, o)
		if err != nil {
			return Step{}, false, fmt.Errorf("%s: %w", o, err)
		}
		if action != "" {
			return Step{o.String(), action}, true, nil
		}
	}
	return Step{}, false, nil
}

// object is an object of the store.
type object struct {
	metav1.Object

	kind   schema.GroupVersionKind
	stored runtime.Object
}

func (o object) groupKind() ownership.Kind {
	return ownership.Kind{Group: o.kind.Group, Kind: o.kind.Kind}
}

// String returns, for example, "ReplicaSet.apps shop/web".
func (o object) String() string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return o.groupKind().String() + " " + name
}

// state is all that there is at a step.
type state struct {
	store   Store
	objects []object // sorted
	byUID   map[ownership.UID]object
	graph   *ownership.Graph
}

// read reads all objects. Each needs a UID: it is what an owner reference means.
func (c Collector) read(ctx context.Context) (*state, error) {
	s := &state{store: c.Store, byUID: map[ownership.UID]object{}, graph: ownership.New()}
	cluster := map[ownership.Kind]bool{}
	for _, kind := range c.Store.Kinds() {
		found, err := c.Store.Objects(ctx, kind)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for _, item := range found {
			accessor, err := meta.Accessor(item)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind.Kind, err)
			}
			o := object{accessor, kind, item}
			if o.GetUID() == "" {
				return nil, fmt.Errorf("%s has no UID: create it through Interceptor or Install, or set one", o)
			}
			if _, known := s.byUID[ownership.UID(o.GetUID())]; known {
				continue // the same, in another version
			}
			s.byUID[ownership.UID(o.GetUID())] = o
			s.objects = append(s.objects, o)
			cluster[o.groupKind()] = cluster[o.groupKind()] || o.GetNamespace() == ""
		}
	}
	slices.SortFunc(s.objects, func(a, b object) int { return strings.Compare(a.String(), b.String()) })
	for _, kind := range c.Store.Kinds() {
		k := ownership.Kind{Group: kind.Group, Kind: kind.Kind}
		s.graph.SetScope(k, scopeOf(k, cluster[k]))
	}
	for _, o := range s.objects {
		s.graph.Observe(observed(o))
	}
	return s, nil
}

// scopeOf returns the scope of a kind. Fakes do not know it: what has no namespace tells.
//
//nolint:revive // not a control flag: half of what is known
func scopeOf(k ownership.Kind, hasClusterScoped bool) ownership.Scope {
	if hasClusterScoped || k == (ownership.Kind{Kind: "Namespace"}) || k == (ownership.Kind{Kind: "Node"}) || k == (ownership.Kind{Kind: "PersistentVolume"}) {
		return ownership.Cluster
	}
	return ownership.Namespaced
}

// decide decides about an object. What no object of the store is, is absent: the store is all that
// there is.
func (s *state) decide(o object) verdict.Decision {
	for {
		facts, _ := verdict.Gather(s.graph, ownership.UID(o.GetUID()))
		verify, ok := verdict.Decide(facts).(verdict.Verify)
		if !ok {
			return verdict.Decide(facts)
		}
		for _, claim := range verify.Claims {
			s.graph.Resolve(claim, ownership.Absent, ownership.Active)
		}
	}
}
