package registry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// REST is the registry of a resource: the generic one of k8s.io/apiserver, with our
// delete flow and with allocation of unique values.
type REST struct {
	*genericregistry.Store
	Resource Resource
	Now      func() time.Time
	deleter  Deleter
}

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.Resource.ShortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return r.Resource.Categories }

// Create creates an object. Where the resource allocates, it replaces the method of
// genericregistry.Store.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if r.Resource.Strategy.Allocate == nil {
		return r.Store.Create(ctx, obj, validate, options)
	}
	var created runtime.Object
	err := r.allocating(ctx, metaOf(obj).GetName(), func(ctx context.Context, a *allocation.Allocation) (err error) {
		attempt := obj.DeepCopyObject()
		if err := r.allocate(a, attempt, nil); err != nil {
			return err
		}
		created, err = r.Store.Create(ctx, attempt, validate, options)
		return err
	})
	return created, err
}

// Update changes an object, or creates it. Where the resource allocates, it replaces the
// method of genericregistry.Store.
func (r *REST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	if r.Resource.Strategy.Allocate == nil {
		return r.Store.Update(ctx, name, info, create, update, forceAllowCreate, options)
	}
	var updated runtime.Object
	var created bool
	err := r.allocating(ctx, name, func(ctx context.Context, a *allocation.Allocation) (err error) {
		allocating := rest.WrapUpdatedObjectInfo(info, func(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
			if metaOf(old).GetUID() == "" {
				old = nil
			}
			return obj, r.allocate(a, obj, old)
		})
		updated, created, err = r.Store.Update(ctx, name, allocating, create, update, forceAllowCreate, options)
		return err
	})
	return updated, created, err
}

// allocating calls write until it succeeds with the allocated values.
func (r *REST) allocating(ctx context.Context, name string, write func(context.Context, *allocation.Allocation) error) error {
	a, request := allocation.New(), allocation.WithRequest(ctx)
	err := a.Run(func() error { return write(request, a) }, func() (iter.Seq[string], error) { return r.valuesInUse(ctx) })
	if refusal, ok := errors.AsType[*field.Error](err); ok {
		return validate.NewInvalid(r.Resource.GVK().GroupKind(), name, field.ErrorList{refusal})
	}
	return err
}

// allocate adds unique values to an object. old is nil if there is no stored object yet.
func (r *REST) allocate(a *allocation.Allocation, obj, old runtime.Object) error {
	errs, err := r.Resource.Strategy.Allocate(a, obj, old)
	if len(errs) > 0 {
		return validate.NewInvalid(r.Resource.GVK().GroupKind(), metaOf(obj).GetName(), errs)
	}
	return err
}

// valuesInUse returns every unique value that an object of the resource has.
func (r *REST) valuesInUse(ctx context.Context) (iter.Seq[string], error) {
	everywhere := genericrequest.WithNamespace(ctx, metav1.NamespaceAll)
	list, err := r.List(everywhere, &internalversion.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the values in use by %s: %w", r.Resource.GroupResource(), err)
	}
	items, err := meta.ExtractList(list)
	return func(yield func(string) bool) {
		for _, obj := range items {
			for _, value := range r.Resource.Strategy.Unique(obj) {
				if !yield(value) {
					return
				}
			}
		}
	}, err
}

// withoutDeleteCollection is a registry that does not serve deletecollection. A REST
// embeds genericregistry.Store, which has DeleteCollection, and the API installer of
// k8s.io/apiserver serves every verb for which the storage has a method. So the wanted
// methods are listed here; a test compares the list with the methods of REST.
type withoutDeleteCollection struct{ singleObjectStorage }

// singleObjectStorage has the interfaces that the API installer looks for in a storage, without
// rest.CollectionDeleter.
type singleObjectStorage interface {
	rest.Storage
	rest.StorageWithReadiness
	rest.Scoper
	rest.SingularNameProvider
	rest.ShortNamesProvider
	rest.CategoriesProvider
	rest.StorageVersionProvider
	rest.TableConvertor
	rest.Getter
	rest.Lister
	rest.Watcher
	rest.CreaterUpdater
	rest.GracefulDeleter
	rest.MayReturnFullObjectDeleter
	rest.CorruptObjectDeleterProvider

	GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set
}
