// Package deleteflow carries out deletions: it takes the plan that package
// deletion makes and executes it in one storage transaction.
//
// A DELETE of a built-in kind enters at Flow.Delete. Its first step is the removal,
// which the storage runs conditioned on the object it shows to removable: when the
// plan for that object is to stay, nothing is removed and the second step marks it,
// again conditioned on the object that the plan was made for. When an object changes
// between the two steps, the flow starts again; so no finalizer that was accepted is
// ever overlooked (R18).
//
// Custom resources are served by a library whose registry cannot be replaced. For
// them Guard stands between the registry and the storage and puts the same plan into
// the same transactions (guard.go). What it needs to know of the HTTP request is
// handed to it by the filter WithRequest (request.go) and the admission plug-in
// Conveyor (admission.go), which also brings the registry to the answer that the plan
// calls for.
//
// Guard also holds every update to R18: one that takes the last finalizer away
// removes the object, on condition that it still is what the update was worked out on.
//
// The library's registry decides first and removes then. Where its decision is past
// when it comes to the removal, the request begins anew (anew.go).
package deleteflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/deletion"
)

// maxTries bounds how often one DELETE follows an object that keeps changing
// between "can go" and "must stay" before the client is told to try again.
const maxTries = 10

var (
	// errStays is how removable tells the flow that the plan is not to remove.
	errStays = errors.New("the object stays for now")
	// errGoes is how the marking step tells the flow that nothing holds the object any more.
	errGoes = errors.New("the object can be removed")
	// errChanged is how unchanged tells Guard that the object is not what it was.
	errChanged = errors.New("the object has changed")
)

// Config is what a Flow is made with. Now is required.
type Config struct {
	// Now is the clock that deletionTimestamp is read from.
	Now func() time.Time
	// Resources are those with rules of their own. A resource that is not among them is
	// deleted as custom resources are.
	Resources []registry.Resource
	// CollectorDisabled is set where no garbage collector runs: then no finalizer
	// is added that only a collector would remove.
	CollectorDisabled bool
}

// Flow carries out deletions. It is safe for concurrent use.
type Flow struct {
	now               func() time.Time
	collectorDisabled bool
	strategies        map[schema.GroupResource]deletion.Strategy
}

// New makes a Flow.
func New(c Config) *Flow {
	f := &Flow{now: c.Now, collectorDisabled: c.CollectorDisabled, strategies: map[schema.GroupResource]deletion.Strategy{}}
	for _, k := range c.Resources {
		f.strategies[k.GroupResource()] = k.Deletion
	}
	return f
}

// strategyOf is what a resource adds to the rules.
func (f *Flow) strategyOf(resource schema.GroupResource) deletion.Strategy {
	strategy, ok := f.strategies[resource]
	if !ok {
		strategy.Resource = resource
	}
	return f.here(strategy)
}

// here is a strategy on this server.
func (f *Flow) here(strategy deletion.Strategy) deletion.Strategy {
	strategy.CollectorDisabled = strategy.CollectorDisabled || f.collectorDisabled
	return strategy
}

// Delete removes the object or marks it as being deleted, whatever the plan for
// it is (R17, R18). It returns the object as the deletion left it, and whether it
// is gone. Errors are API errors.
func (f *Flow) Delete(ctx context.Context, d registry.Deletion) (runtime.Object, bool, error) {
	strategy := f.here(d.Strategy)
	execution := execution{
		storage: d.Storage,
		key:     d.Key,
		decide: func(_ context.Context, obj runtime.Object) (deletion.Plan, error) {
			return deletion.Decide(obj, d.Options, strategy, f.now())
		},
		validate:      d.Validate,
		preconditions: preconditionsOf(d.Options),
		dryRun:        dryrun.IsDryRun(d.Options.DryRun),
	}
	out := d.New()
	removed, err := execution.run(planned(ctx), out)
	if err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, d.Resource, d.Name)
	}
	return out, removed, nil
}

// execution carries out the plan for one object.
type execution struct {
	storage       genericregistry.DryRunnableStorage
	key           string
	decide        func(context.Context, runtime.Object) (deletion.Plan, error)
	validate      func(context.Context, runtime.Object) error // admission; may be nil
	preconditions *storage.Preconditions
	dryRun        bool
}

// run removes or marks the object, and leaves its last state in out.
func (e execution) run(ctx context.Context, out runtime.Object) (removed bool, err error) {
	for range maxTries {
		if err := e.remove(ctx, out); !errors.Is(err, errStays) {
			return err == nil, err
		}
		if err := e.mark(ctx, out); !errors.Is(err, errGoes) {
			return false, err
		}
	}
	return false, storage.NewInvalidObjError(e.key, fmt.Sprintf("the object changed %d times while it was being deleted; try again", maxTries))
}

// remove removes the object if the plan for it, as the transaction finds it, says so.
func (e execution) remove(ctx context.Context, out runtime.Object) error {
	removable := func(ctx context.Context, obj runtime.Object) error {
		if err := e.admit(ctx, obj); err != nil {
			return err
		}
		plan, err := e.decide(ctx, obj)
		if err != nil {
			return err
		}
		if _, ok := plan.(deletion.Remove); !ok {
			return errStays
		}
		return nil
	}
	return e.storage.Delete(ctx, e.key, out, e.preconditions, removable, e.dryRun, nil, storage.DeleteOptions{})
}

// mark writes what the plan wants of an object that stays.
func (e execution) mark(ctx context.Context, out runtime.Object) error {
	update := func(existing runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := e.admit(ctx, existing); err != nil {
			return nil, nil, err
		}
		plan, err := e.decide(ctx, existing)
		if err != nil {
			return nil, nil, err
		}
		marked, err := applied(plan, existing)
		return marked, nil, err
	}
	return e.storage.GuaranteedUpdate(ctx, e.key, out, false, e.preconditions, update, e.dryRun, nil)
}

// admit runs admission on the object as it is now. It comes before the plan: on
// the way through the library's registry it is admission that tells the options.
func (e execution) admit(ctx context.Context, obj runtime.Object) error {
	if e.validate == nil {
		return nil
	}
	return e.validate(ctx, obj.DeepCopyObject())
}

// applied is the object as a plan leaves it, or errGoes.
func applied(plan deletion.Plan, obj runtime.Object) (runtime.Object, error) {
	switch p := plan.(type) {
	case deletion.Remove:
		return nil, errGoes
	case deletion.Mark:
		return obj, p.Apply(obj)
	case deletion.Keep:
		return obj, nil
	}
	panic(fmt.Sprintf("unknown plan %T", plan))
}

func preconditionsOf(options *metav1.DeleteOptions) *storage.Preconditions {
	if options.Preconditions == nil {
		return &storage.Preconditions{}
	}
	return &storage.Preconditions{UID: options.Preconditions.UID, ResourceVersion: options.Preconditions.ResourceVersion}
}
