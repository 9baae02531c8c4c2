package deleteflow

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/deletion"
)

// Guard puts the delete flow between a registry of the library and its storage.
// Reads and creations pass; so does all that Flow itself does.
func (f *Flow) Guard(resource schema.GroupResource, inner storage.Interface) storage.Interface {
	return &guard{Interface: inner, flow: f, strategy: f.strategyOf(resource)}
}

type guard struct {
	storage.Interface
	flow     *Flow
	strategy deletion.Strategy
}

// decide makes the plan of a DELETE that came through the library's registry.
func (g *guard) decide(ctx context.Context, obj runtime.Object) (deletion.Plan, error) {
	var options *metav1.DeleteOptions
	if r := requestFrom(ctx); r != nil {
		options = r.deleteOptions()
	}
	return deletion.Decide(obj, options, g.strategy, g.flow.now())
}

// Get is also how the registry begins with each object of a collection.
func (g *guard) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	err := g.Interface.Get(ctx, key, opts, out)
	if f := refusalsFrom(ctx); f != nil && err == nil {
		return f.begin(ctx, key, out)
	}
	return err
}

// GuaranteedUpdate lets the registry work out its update, and then holds it to the
// rules: a DELETE marks as planned (planInstead), and an update that leaves the
// object with nothing to wait for removes it (observe).
func (g *guard) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	r := requestFrom(ctx)
	if r == nil || isPlanned(ctx) {
		return g.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	}
	held := g.observe(r, tryUpdate)
	if r.deletes {
		held = g.planInstead(ctx, tryUpdate)
	}
	err := g.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, held, cached)
	switch {
	case !errors.Is(err, errGoes):
		return r.refused.keep(ctx, key, err)
	case r.deletes:
		removed, err := g.execution(key, preconditions, nil).run(ctx, destination)
		if removed {
			r.remember(destination)
		}
		return r.refused.keep(ctx, key, err)
	default:
		return g.removeUnchanged(ctx, r, removal{key: key, out: destination, preconditions: preconditions, validate: storage.ValidateAllObjectFunc})
	}
}

// observe remembers what an update is worked out on. The library's registry ends an
// update that takes the last finalizer away with an error, and then calls Delete; on
// the kinds that it would keep although nothing holds them, this function does.
func (g *guard) observe(r *request, registry storage.UpdateFunc) storage.UpdateFunc {
	return func(existing runtime.Object, m storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := r.see(existing); err != nil {
			return nil, nil, err
		}
		obj, ttl, err := registry(existing, m)
		if err == nil && deletion.Finished(obj, g.strategy) {
			err = errGoes
		}
		return obj, ttl, err
	}
}

// planInstead makes an update that marks as planned, whatever way of marking the
// registry has. It keeps what the registry checks, and what it adds of its own.
func (g *guard) planInstead(ctx context.Context, registry storage.UpdateFunc) storage.UpdateFunc {
	return func(existing runtime.Object, m storage.ResponseMeta) (runtime.Object, *uint64, error) {
		obj, ttl, err := registry(existing.DeepCopyObject(), m)
		if err != nil {
			return nil, nil, err
		}
		if err := unmark(obj, existing); err != nil {
			return nil, nil, err
		}
		plan, err := g.decide(ctx, obj)
		if err != nil {
			return nil, nil, err
		}
		marked, err := applied(plan, obj)
		return marked, ttl, err
	}
}

// unmark takes back what marks obj as being deleted, so that it stands there as in
// existing. Finalizers that the registry of a kind adds when a deletion begins, as
// that of CustomResourceDefinitions does, are kept.
func unmark(obj, existing runtime.Object) error {
	to, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	from, err := meta.Accessor(existing)
	if err != nil {
		return err
	}
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	to.SetDeletionGracePeriodSeconds(from.GetDeletionGracePeriodSeconds())
	to.SetGeneration(from.GetGeneration())
	finalizers := slices.Clone(from.GetFinalizers())
	for _, f := range to.GetFinalizers() {
		if !isCollectors(f) && !slices.Contains(finalizers, f) {
			finalizers = append(finalizers, f)
		}
	}
	to.SetFinalizers(finalizers)
	return nil
}

// isCollectors tells whether a finalizer is one of the collector's.
func isCollectors(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// Delete removes the object if its plan, made on what the transaction is
// conditioned on, is to remove it. When it must stay after all, because a finalizer
// came in between, the request begins anew; one that cannot, marks the object.
func (g *guard) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	r := requestFrom(ctx)
	switch {
	case isPlanned(ctx), opts.ExpectTransformOrDecodeError:
		// No plan can be made for an object that cannot be read.
		return g.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	case r != nil && !r.deletes:
		return g.removeUnchanged(ctx, r, removal{key: key, out: out, preconditions: preconditions, validate: validate})
	}
	execution := g.execution(key, preconditions, validate)
	if !r.canBeginAnew() {
		_, err := execution.run(ctx, out)
		return refusalsFrom(ctx).keep(ctx, key, err)
	}
	err := execution.remove(ctx, out)
	switch {
	case errors.Is(err, errStays):
		return r.beginAnew(key)
	case err == nil:
		r.remember(out)
	}
	return err
}

// removal is what a storage is told of an object to be removed.
type removal struct {
	key           string
	out           runtime.Object
	preconditions *storage.Preconditions
	validate      storage.ValidateObjectFunc
}

// removeUnchanged removes the object that the request's update was worked out on.
func (g *guard) removeUnchanged(ctx context.Context, r *request, what removal) error {
	err := g.Interface.Delete(ctx, what.key, what.out, what.preconditions, r.unchanged(what.validate), nil, storage.DeleteOptions{})
	if errors.Is(err, errChanged) {
		return r.beginAnew(what.key)
	}
	return err
}

// execution carries out a plan on the storage below.
func (g *guard) execution(key string, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc) execution {
	return execution{
		storage: genericregistry.DryRunnableStorage{Storage: g.Interface}, key: key,
		decide: g.decide, validate: validate, preconditions: preconditions,
	}
}
