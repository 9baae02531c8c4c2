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

	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// Guard puts the delete flow between a registry of k8s.io/apiserver and its storage. It is for a
// storage.Wrap. Reads, creations and the calls of Flow pass through unchanged. closer closes objects of the resource (Closed);
// nil for a resource that nothing is created in.
func (f *Flow) Guard(resource schema.GroupResource, closer Closer, inner storage.Interface) storage.Interface {
	g := &guard{Interface: inner, flow: f, strategy: f.strategyOf(resource)}
	if closer == nil {
		return g
	}
	return whileClosed{g, closer}
}

type guard struct {
	storage.Interface
	flow     *Flow
	strategy deletion.Strategy
}

// decide makes the plan of a DELETE that came through upstream's registry.
func (g *guard) decide(ctx context.Context, obj runtime.Object) (deletion.Plan, error) {
	return g.flow.decide(ctx, obj, optionsFrom(ctx), g.strategy)
}

// report reports a DELETE that came through upstream's registry, which has run admission before.
func (g *guard) report(ctx context.Context, obj runtime.Object) {
	g.flow.reportRequest(ctx, obj, optionsFrom(ctx))
}

// optionsFrom returns the options of the DELETE of a context; nil if it has none, or if admission has not run.
func optionsFrom(ctx context.Context) *metav1.DeleteOptions {
	if r := requestFrom(ctx); r != nil {
		return r.deleteOptions()
	}
	return nil
}

// Get is also the registry's first call for each object of a collection.
func (g *guard) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	err := g.Interface.Get(ctx, key, opts, out)
	if f := refusalsFrom(ctx); f != nil && err == nil {
		return f.begin(ctx, key, out)
	}
	return err
}

// GuaranteedUpdate lets the registry compute its update, and then applies the rules: a DELETE marks
// the object as planned (markAsPlanned), and an update after which the object waits for nothing
// removes it (removeFinished).
func (g *guard) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	r := requestFrom(ctx)
	switch {
	case isPlanned(ctx):
		return g.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	case r == nil:
		return g.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, g.keepProtected(ctx, tryUpdate), cached)
	}
	update := g.removeFinished(r, tryUpdate)
	if r.deletes {
		update = g.markAsPlanned(ctx, tryUpdate)
	}
	err := g.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	switch {
	case !errors.Is(err, errGoes):
		return r.refused.keep(ctx, key, err)
	case r.deletes:
		removed, err := g.execution(key, preconditions, nil).run(ctx, destination)
		if removed {
			r.recordRemoval(destination)
		}
		return r.refused.keep(ctx, key, err)
	default:
		return g.removeUnchanged(ctx, r, removal{key: key, out: destination, preconditions: preconditions, validate: storage.ValidateAllObjectFunc})
	}
}

// removeFinished makes an update end with errGoes if the object waits for nothing afterwards, and
// keeps the version from which the update was computed. For most kinds the registry notices this
// itself and calls Delete; it would keep objects of the other kinds.
func (g *guard) removeFinished(r *request, registry storage.UpdateFunc) storage.UpdateFunc {
	return func(existing runtime.Object, m storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if err := r.observe(existing); err != nil {
			return nil, nil, err
		}
		obj, ttl, err := registry(existing, m)
		if err == nil && deletion.Finished(obj, g.strategy) {
			err = errGoes
		}
		return obj, ttl, err
	}
}

// markAsPlanned replaces the registry's way of marking an object with the plan's. The registry's
// checks and its other changes are kept.
func (g *guard) markAsPlanned(ctx context.Context, registry storage.UpdateFunc) storage.UpdateFunc {
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
		g.report(ctx, obj)
		marked, err := applied(plan, obj)
		return marked, ttl, err
	}
}

// unmark restores from existing the fields that mark obj as being deleted. Finalizers that the
// registry of a kind adds when a deletion begins, like that of CustomResourceDefinitions, are
// kept.
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

// isCollectors reports whether a finalizer belongs to the garbage collector.
func isCollectors(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// Delete removes the object if that is the plan for the object in the transaction. If the object
// must stay, because a finalizer was added meanwhile, the request is served again or, if that is
// impossible, the object is marked.
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
	execution := g.execution(key, r.preconditionsOr(preconditions), validate)
	if !r.canRetry() {
		_, err := execution.run(ctx, out)
		return refusalsFrom(ctx).keep(ctx, key, g.passOver(r, err))
	}
	err := execution.remove(ctx, out)
	switch {
	case errors.Is(err, errStays):
		return r.retry(key)
	case err == nil:
		r.recordRemoval(out)
	}
	return err
}

// removal holds the arguments of a removal.
type removal struct {
	key           string
	out           runtime.Object
	preconditions *storage.Preconditions
	validate      storage.ValidateObjectFunc
}

// removeUnchanged removes the object if it is still the one from which the request's update was
// computed.
func (g *guard) removeUnchanged(ctx context.Context, r *request, what removal) error {
	err := g.Interface.Delete(ctx, what.key, what.out, what.preconditions, r.unchanged(what.validate), nil, storage.DeleteOptions{})
	if errors.Is(err, errChanged) {
		return r.retry(what.key)
	}
	return err
}

// execution executes a plan on the inner storage. Admission runs before the plan is made, because
// an admission plug-in supplies the options (OptionsPlugin).
func (g *guard) execution(key string, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc) execution {
	return execution{
		storage: genericregistry.DryRunnableStorage{Storage: g.Interface}, key: key, preconditions: preconditions, report: g.report,
		decide: func(ctx context.Context, obj runtime.Object) (deletion.Plan, error) {
			if validate != nil {
				if err := validate(ctx, obj.DeepCopyObject()); err != nil {
					return nil, err
				}
			}
			return g.decide(ctx, obj)
		},
	}
}
