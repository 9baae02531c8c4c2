// Package fakes applies the rules of deletion and collection to fakes: to client-go's object
// tracker and to controller-runtime's fake client, which keep objects in maps and do not cascade.
// There are no goroutines and no time: each Step of a Collector makes one change, always the same
// one in the same state, and Run repeats Step until nothing changes.
//
//	builder := fake.NewClientBuilder().WithInterceptorFuncs(fakes.Interceptor())
//	client := builder.Build()
//	…
//	steps, err := fakes.ForClient(client).Run(ctx)
//
// The collector and the API server use the same rules: packages verdict and deletion of Coppice.
// This module therefore requires Coppice's. The package adds UIDs, finalizers for the policies
// foreground and orphan, and namespaces that stay until they are empty, because fakes lack them.
//
// The flow of a Step: read all objects (Store), build the ownership graph, and decide on each
// object in the order of kinds and names; carry out the first decision that changes something.
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

// Store holds the objects of a Collector.
type Store interface {
	// Kinds returns the kinds that are served.
	Kinds() []schema.GroupVersionKind
	// Objects returns the objects of a kind.
	Objects(ctx context.Context, kind schema.GroupVersionKind) ([]runtime.Object, error)
	// Write replaces an object. It removes a terminating object without finalizers.
	Write(ctx context.Context, kind schema.GroupVersionKind, object runtime.Object) error
	// Mark replaces an object with a version that is terminating and has finalizers.
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

// ErrEndless is the error of Run when the changes do not end: something recreates the collected
// objects.
var ErrEndless = errors.New("collection does not come to rest")

// mostSteps bounds Run.
const mostSteps = 100_000

// Collector collects the objects of a Store. Make one with ForClient or ForTracker, or from your
// own Store.
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

// state holds all objects at a step.
type state struct {
	store   Store
	objects []object // sorted
	byUID   map[ownership.UID]object
	graph   *ownership.Graph
}

// read reads all objects. Each needs a UID, because owner references point to UIDs.
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

// scopeOf returns the scope of a kind. Fakes do not know it: objects without a namespace show that
// a kind is cluster-scoped.
//
//nolint:revive // not a control flag: half of what is known
func scopeOf(k ownership.Kind, hasClusterScoped bool) ownership.Scope {
	if hasClusterScoped || k == (ownership.Kind{Kind: "Namespace"}) || k == (ownership.Kind{Kind: "Node"}) || k == (ownership.Kind{Kind: "PersistentVolume"}) {
		return ownership.Cluster
	}
	return ownership.Namespaced
}

// decide decides on an object. An owner that is not in the store is absent: the store holds all
// objects.
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
