package deleteflow

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// confirm returns the refusal to delete an object whose deletion needs a confirmation, and has none (R32).
func (f *Flow) confirm(ctx context.Context, obj runtime.Object, plan deletion.Plan, options *metav1.DeleteOptions, resource schema.GroupResource) error {
	if f.confirmed == nil {
		return nil
	}
	m, err := meta.Accessor(obj)
	if err != nil || m.GetDeletionTimestamp() != nil {
		return err // a deletion that was decided before
	}
	mark, isMark := plan.(deletion.Mark)
	return f.confirmed(ctx, protected.Deleting{
		Resource: resource, Object: m, Orphans: isMark && slices.Contains(mark.Finalizers, metav1.FinalizerOrphanDependents),
		DryRun: options != nil && dryrun.IsDryRun(options.DryRun),
	})
}

// GetList is the first call of the registry for a collection. Before anything is deleted, all objects of the collection are
// counted as one deletion (R32).
func (g *guard) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if f := refusalsFrom(ctx); f != nil && g.flow.confirmed != nil && f.isFirstList() {
		if err := g.confirmAll(ctx, key, opts, list.DeepCopyObject()); err != nil {
			return err
		}
	}
	return g.Interface.GetList(ctx, key, opts, list)
}

func (g *guard) confirmAll(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	opts.Predicate.Limit, opts.Predicate.Continue = 0, ""
	if err := g.Interface.GetList(ctx, key, opts, list); err != nil {
		return err
	}
	all := protected.Deleting{Resource: g.strategy.Resource, All: []types.UID{}, Namespace: genericrequest.NamespaceValue(ctx)}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil && m.GetDeletionTimestamp() == nil {
			all.All = append(all.All, m.GetUID())
		}
		return err
	})
	if err != nil {
		return err
	}
	return g.flow.confirmed(ctx, all)
}

// isFirstList reports whether the registry has not listed the collection before.
func (f *refusals) isFirstList() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	isFirst := !f.listed
	f.listed = true
	return isFirst
}
