package deleteflow

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/rules/deletion"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// decide makes the plan of a DELETE, or refuses it if the object is protected (R28), or if it needs a confirmation (R32).
// The object comes from the storage transaction, or from admission before it.
func (f *Flow) decide(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions, strategy deletion.Strategy) (deletion.Plan, error) {
	plan, err := deletion.Decide(obj, options, strategy, f.now())
	resource := f.StoredAs(strategy.Resource) // an older group is no way around R28 and R32
	if err == nil && f.mayBeProtected(obj, resource) {
		err = f.protect(ctx, obj, resource)
	}
	if err == nil {
		err = f.confirm(ctx, obj, plan, options, resource)
	}
	return plan, err
}

// mayBeProtected reports whether an object has the label of R28, or a resource with a default mode.
func (f *Flow) mayBeProtected(obj runtime.Object, resource schema.GroupResource) bool {
	_, hasDefault := f.defaults[resource]
	return hasDefault || isLabelled(obj)
}

// isLabelled reports whether an object has the label of R28. It copies nothing, because every deletion calls it.
func isLabelled(obj runtime.Object) bool {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		metadata, _ := custom.Object["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		_, labelled := labels[protection.Label]
		return labelled
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	_, labelled := m.GetLabels()[protection.Label]
	return labelled
}

// protect returns the refusal to delete an object that is protected and not being deleted yet (R28).
func (f *Flow) protect(ctx context.Context, obj runtime.Object, resource schema.GroupResource) error {
	m, err := meta.Accessor(obj)
	if err != nil || m.GetDeletionTimestamp() != nil {
		return err
	}
	p, protected := f.defaults.Of(resource, m)
	if !protected {
		return nil
	}
	if p.Mode == protection.Unused {
		if err := requestFrom(ctx).needClosed(m.GetName()); err != nil {
			return err
		}
	}
	var left []protection.Remaining
	if p.NeedsLookup() {
		left = f.left(ctx, resource, m, p)
	}
	if refusal := p.Answer(deleterOf(ctx), left); refusal != nil {
		return refusal.Error(resource, m.GetNamespace(), m.GetName())
	}
	return nil
}

// unknownWhetherLeft is for a server without Config.Remaining.
func unknownWhetherLeft(_ context.Context, _ schema.GroupResource, _ metav1.Object, p protection.Protection) []protection.Remaining {
	const unknown = "this server does not look it up"
	if p.Mode == protection.Unused {
		return []protection.Remaining{{Outlived: protection.Outlived{Kind: "any"}, Unknown: unknown}}
	}
	left := make([]protection.Remaining, len(p.Outlives))
	for i, o := range p.Outlives {
		left[i] = protection.Remaining{Outlived: o, Unknown: unknown}
	}
	return left
}

// deleterOf returns the kind of client that deletes. The server itself, without a user, deletes the instances of a
// CustomResourceDefinition. Collectors and namespace controllers of Coppice that run as another user identify
// themselves with a header.
func deleterOf(ctx context.Context) protection.Deleter {
	who, ok := genericrequest.UserFrom(ctx)
	if !ok || protection.IsCascade(who.GetName()) {
		return protection.Cascade
	}
	if r := requestFrom(ctx); r != nil && r.reasons {
		return protection.Cascade
	}
	return protection.Request
}

// keepProtected makes an update by the server itself fail if it would mark a protected object. Such an update belongs
// to no request; markAsPlanned handles requests.
func (g *guard) keepProtected(ctx context.Context, registry storage.UpdateFunc) storage.UpdateFunc {
	return func(existing runtime.Object, m storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if !g.flow.mayBeProtected(existing, g.strategy.Resource) {
			return registry(existing, m)
		}
		before := existing.DeepCopyObject()
		obj, ttl, err := registry(existing, m)
		if err == nil && isMarked(obj) {
			err = g.passOver(nil, g.flow.protect(ctx, before, g.strategy.Resource))
		}
		return obj, ttl, err
	}
}

func isMarked(obj runtime.Object) bool {
	m, err := meta.Accessor(obj)
	return err == nil && m.GetDeletionTimestamp() != nil
}

// passOver returns NotFound for an object whose deletion is refused while the server deletes all instances of a
// CustomResourceDefinition. The server would stop at a refusal. Instead it goes on, waits until all instances are
// removed, and tries again after a minute.
func (g *guard) passOver(r *request, err error) error {
	if r != nil {
		return err
	}
	if _, refused := protection.Refused(err); !refused {
		return err
	}
	return apierrors.NewNotFound(g.strategy.Resource, "")
}
