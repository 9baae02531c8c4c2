// Package deleteflow carries out deletions: package deletion makes the plan for an object, and this package executes it
// in storage transactions, each conditioned on exactly the object that the plan was made for. So it never overlooks an
// accepted finalizer (R18).
//
// There are two entry points. Built-in kinds have registries of our own, which call Flow.Delete.
// k8s.io/apiextensions-apiserver serves custom resources and CustomResourceDefinitions: its registries are upstream's
// genericregistry.Store and cannot be replaced. For them, Guard is between the registry and the storage, and executes
// the same plan in the same transactions.
//
//	         built-in kind                        custom resource
//	DELETE ───────┬──────────────────────────────────┬──────────────────────── HTTP
//	              │                          WithRequest  request.go     a value in the context for
//	              │                                  │                   the parts below
//	              │                                  ├─ serveWithRetries  retry.go: serves a request again
//	              │                                  │                   after a concurrent write
//	              │                                  └─ serveCollection  collection.go: a refused object
//	              │                                  │                   does not stop the others
//	       registry.REST                   genericregistry.Store         decides first, then writes
//	              │                                  │
//	          admission                          admission
//	              │                          OptionsPlugin  admission.go  keeps the DeleteOptions for Guard
//	              │                                  │
//	        Flow.Delete  flow.go              guard.Delete, guard.GuaranteedUpdate  guard.go
//	              └────────────────┬─────────────────┘
//	                      execution.run  flow.go
//	              refuse, if the object is protected (R28, protected.go);
//	              remove, if deletion.Decide plans that for the object in the transaction;
//	              else mark it, if Decide still plans that; else start again.
//	              A pod is marked before it is removed, even if it waits for nothing
//	                               │
//	                      storage transactions
//
// The storage calls of Flow.Delete pass through Guard unchanged (planned, request.go).
//
// Guard also enforces R18 on updates: an update that removes the last finalizer of a terminating object removes the
// object, unless the object has changed since the update was computed.
package deleteflow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/deletion"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// maxTries limits the tries of one DELETE of an object that keeps changing between "can be removed" and "must stay".
// After that, the client must try again.
const maxTries = 10

// removalTimeout limits the second of the two transactions that remove an object of a kind that is deleted gracefully.
// It does not end with the request: otherwise, an object that is marked and waits for nothing would stay until the next
// DELETE.
const removalTimeout = 30 * time.Second

var (
	// errStays ends a removal if the plan is not to remove.
	errStays = errors.New("the object stays for now")
	// errGoes ends an update if nothing holds the object any more.
	errGoes = errors.New("the object can be removed")
	// errChanged ends a removal if the object has changed since the update was computed.
	errChanged = errors.New("the object has changed")
)

// Config configures a Flow. Now is required.
type Config struct {
	// Now is the clock of deletionTimestamp.
	Now func() time.Time
	// Resources are the built-in resources, some of which have several groups.
	Resources []registry.Resource
	// Collector is set if a garbage collector runs. Otherwise the flow adds no finalizer that only a collector
	// removes.
	Collector bool
	// OnRequest, if set, is called for a DELETE of an object that is not terminating and not protected, after admission
	// has accepted it. The call comes before the DELETE succeeds, and may be repeated for one request. Dry runs, and the
	// collector and namespace controller of Kubernetes or of this process, cause no calls.
	OnRequest func(Requested)
	// Remaining returns the objects because of which a protected object stays (R28): those that still exist or could not be
	// checked, named as far as the request's user may read them. It is called in storage transactions. If it is nil, none
	// can be checked.
	Remaining func(ctx context.Context, resource schema.GroupResource, m metav1.Object, p protection.Protection) []protection.Remaining
	// Confirmed returns the refusal of a deletion that needs a confirmation and has none (R32); nil: none needs one. It is
	// called in storage transactions, and may be called several times for one request.
	Confirmed func(ctx context.Context, d protected.Deleting) error
	// Protect are the modes of protection of objects without a label (R28). Resources with several groups have any of
	// them.
	Protect protection.Defaults
	// Stored reads the metadata of stored objects. Nil: no object is found.
	Stored StoredMetadata
}

// Flow carries out deletions. It is safe for concurrent use.
type Flow struct {
	now       func() time.Time
	collector bool
	left      func(ctx context.Context, resource schema.GroupResource, m metav1.Object, p protection.Protection) []protection.Remaining
	confirmed func(ctx context.Context, d protected.Deleting) error
	onRequest func(Requested)
	defaults  protection.Defaults                           // by the resource under which the objects are stored
	rows      map[schema.GroupResource]schema.GroupResource // where a resource with several groups is stored
	stored    StoredMetadata
	emptied   emptied
}

// New returns a Flow.
func New(c Config) *Flow {
	f := &Flow{now: c.Now, collector: c.Collector, left: c.Remaining, confirmed: c.Confirmed, onRequest: c.OnRequest, rows: map[schema.GroupResource]schema.GroupResource{}, defaults: protection.Defaults{}, stored: c.Stored, emptied: emptied{now: c.Now, by: map[emptiedBy]emptiedNamespace{}}}
	if f.onRequest == nil {
		f.onRequest = func(Requested) {}
	}
	if f.left == nil {
		f.left = unknownWhetherLeft
	}
	if f.stored == nil {
		f.stored = nothingStored
	}
	for _, k := range c.Resources {
		for _, version := range k.GroupVersions() {
			f.rows[schema.GroupResource{Group: version.Group, Resource: k.Plural}] = k.GroupResource()
		}
	}
	for resource, mode := range c.Protect {
		f.defaults[f.StoredAs(resource)] = mode
	}
	return f
}

// strategyOf returns the deletion strategy of a resource.
func (f *Flow) strategyOf(resource schema.GroupResource) deletion.Strategy {
	return f.withServer(builtin.StrategyOf(f.StoredAs(resource)))
}

// StoredAs returns the resource under which the objects of a resource are stored: deployments.apps for
// deployments.extensions.
func (f *Flow) StoredAs(resource schema.GroupResource) schema.GroupResource {
	if row, ok := f.rows[resource]; ok {
		return row
	}
	return resource
}

// nothingStored is for a server without Config.Stored.
func nothingStored(context.Context, schema.GroupResource, string, string, int64) (types.UID, int64, error) {
	return "", 0, nil
}

// withServer returns a strategy with the settings of this server.
func (f *Flow) withServer(strategy deletion.Strategy) deletion.Strategy {
	strategy.CollectorDisabled = strategy.CollectorDisabled || !f.collector
	return strategy
}

// Delete removes the object or marks it as being deleted, as planned (R17, R18). It returns the last state of the
// object, and whether the object was removed. Errors are API errors.
func (f *Flow) Delete(ctx context.Context, d registry.Deletion) (runtime.Object, bool, error) {
	strategy := f.withServer(d.Strategy)
	execution := execution{
		storage: d.Storage,
		key:     d.Key,
		decide: func(ctx context.Context, obj runtime.Object) (deletion.Plan, error) {
			return f.decide(ctx, obj, d.Options, strategy)
		},
		validate:      d.Validate,
		report:        func(ctx context.Context, obj runtime.Object) { f.reportRequest(ctx, obj, d.Options) },
		preconditions: preconditionsOf(d.Options),
		dryRun:        dryrun.IsDryRun(d.Options.DryRun),
	}
	out := d.New()
	removed, err := execution.run(planned(ctx), out)
	if err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, d.Resource, d.Name)
	}
	if d.Resource == namespacesResource() && !removed && !execution.dryRun {
		f.emptied.add(ctx, out)
	}
	return out, removed, nil
}

type execution struct {
	storage       genericregistry.DryRunnableStorage
	key           string
	decide        func(context.Context, runtime.Object) (deletion.Plan, error)
	validate      func(context.Context, runtime.Object) error // admission; nil if decide runs it
	report        func(context.Context, runtime.Object)       // reports the request, after admission
	preconditions *storage.Preconditions
	dryRun        bool
}

// run removes or marks the object. Its last state is in out.
func (e execution) run(ctx context.Context, out runtime.Object) (removed bool, err error) {
	for range maxTries {
		if err := e.remove(ctx, out); !errors.Is(err, errStays) {
			return err == nil, err
		}
		plan, err := e.mark(ctx, out)
		if errors.Is(err, errGoes) {
			continue
		}
		if _, goes := plan.(deletion.Remove); err != nil || !goes {
			return false, err
		}
		return true, e.removeMarked(ctx, out)
	}
	return false, storage.NewInvalidObjError(e.key, fmt.Sprintf("the object changed %d times while it was being deleted; try again", maxTries))
}

// remove removes the object if that is the plan for the object in the transaction.
func (e execution) remove(ctx context.Context, out runtime.Object) error {
	removable := func(ctx context.Context, obj runtime.Object) error {
		plan, err := e.decide(ctx, obj)
		if err != nil {
			return err
		}
		if p, ok := plan.(deletion.Remove); !ok || p.MarkFirst != nil {
			return errStays
		}
		return e.admit(ctx, obj)
	}
	return e.storage.Delete(ctx, e.key, out, e.preconditions, removable, e.dryRun, nil, storage.DeleteOptions{})
}

// mark writes the changes of the plan to an object that stays, or that is marked before its removal. It returns the
// plan.
func (e execution) mark(ctx context.Context, out runtime.Object) (plan deletion.Plan, err error) {
	update := func(existing runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		var err error
		if plan, err = e.decide(ctx, existing); err != nil {
			return nil, nil, err
		}
		if err := e.admit(ctx, existing); err != nil {
			return nil, nil, err
		}
		marked, err := applied(plan, existing)
		return marked, nil, err
	}
	err = e.storage.GuaranteedUpdate(ctx, e.key, out, false, e.preconditions, update, e.dryRun, nil)
	return plan, err
}

// removeMarked removes an object that mark has just written and that waits for nothing. mark has checked preconditions
// and admission, and after that nothing can keep the object (R19). So removeMarked checks only its identity. If another
// write has removed the object meanwhile, out stays unchanged.
func (e execution) removeMarked(ctx context.Context, out runtime.Object) error {
	object, err := meta.Accessor(out)
	if err != nil || e.dryRun {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
	defer cancel()
	err = e.storage.Delete(ctx, e.key, out, storage.NewUIDPreconditions(string(object.GetUID())),
		storage.ValidateAllObjectFunc, false, nil, storage.DeleteOptions{})
	if storage.IsNotFound(err) || storage.IsInvalidObj(err) { // gone, or of another uid
		return nil
	}
	return err
}

// admit runs admission on the current object, after the plan is made, and reports a request that is not refused. Only the
// transaction that executes the plan calls it, not a transaction which finds that the other one is necessary.
func (e execution) admit(ctx context.Context, obj runtime.Object) error {
	if e.validate != nil {
		if err := e.validate(ctx, obj.DeepCopyObject()); err != nil {
			return err
		}
	}
	e.report(ctx, obj)
	return nil
}

// applied applies the plan to the object and returns it, or returns errGoes.
func applied(plan deletion.Plan, obj runtime.Object) (runtime.Object, error) {
	switch p := plan.(type) {
	case deletion.Remove:
		if p.MarkFirst != nil {
			return obj, p.MarkFirst.Apply(obj)
		}
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
