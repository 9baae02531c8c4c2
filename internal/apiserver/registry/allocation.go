package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/stack"
)

// Values that only one object may have, such as the address of a service, are kept
// unique by the storage, in the transaction that writes the object. What is done here
// is to guess a value, and to guess again when the storage says that it is taken. So
// there is no allocator with a state of its own that could be wrong, and any number of
// servers may write to one store.

// TakenError says that an object was not written, because it has a value that another
// object has for itself.
type TakenError struct {
	Value string
	// Holder is the storage key of the object that has it.
	Holder string
}

// Error implements error.
func (e TakenError) Error() string { return fmt.Sprintf("%s is taken by %s", e.Value, e.Holder) }

// guesses is how often a value is guessed before all that are taken are looked up.
const guesses = 4

// allocation is the state of one request that has to find values.
type allocation struct {
	ranges Ranges
	pick   func(n uint64) uint64 // a random number below n
	// taken are the values that cannot be had, as far as they are known.
	taken map[string]bool
	// exact is set when taken is all there are: then there is no need to guess.
	exact bool
	tries int
	// wanted is, by value that the client asked for, what it is told if it cannot be had.
	wanted map[string]*field.Error
}

// allocating calls write until what it was given could be had. write completes a fresh
// copy of the object each time.
func (r *REST) allocating(ctx context.Context, name string, write func(*allocation) error) error {
	a := &allocation{ranges: r.ranges, pick: r.pick, taken: map[string]bool{}}
	for {
		a.wanted = map[string]*field.Error{}
		err := write(a)
		taken, ok := errors.AsType[TakenError](err)
		if !ok {
			return err
		}
		if wanted := a.wanted[taken.Value]; wanted != nil {
			return apierrors.NewInvalid(r.kind.GVK().GroupKind(), name, field.ErrorList{wanted})
		}
		if a.exact && a.taken[taken.Value] {
			return fmt.Errorf("find free values for %s: %w", name, err)
		}
		a.taken[taken.Value] = true
		if a.tries++; a.tries == guesses {
			if err := r.lookUpTaken(ctx, a); err != nil {
				return err
			}
		}
	}
}

// lookUpTaken finds every value that an object of the kind has.
func (r *REST) lookUpTaken(ctx context.Context, a *allocation) error {
	everywhere := genericrequest.WithNamespace(ctx, metav1.NamespaceAll)
	list, err := r.List(everywhere, &internalversion.ListOptions{})
	if err != nil {
		return fmt.Errorf("list what %s have: %w", r.kind.GroupResource(), err)
	}
	a.exact = true
	return meta.EachListItem(list, func(obj runtime.Object) error {
		for _, value := range r.kind.Unique(obj) {
			a.taken[value] = true
		}
		return nil
	})
}

// Create creates an object. Where the kind allocates, it replaces the library's method.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	stack.Grow()
	allocate := r.kind.behaviour.allocate
	if allocate == nil {
		return r.Store.Create(ctx, obj, validate, options)
	}
	var created runtime.Object
	err := r.allocating(ctx, metaOf(obj).GetName(), func(a *allocation) (err error) {
		attempt := obj.DeepCopyObject()
		if err := r.allocate(a, attempt, nil); err != nil {
			return err
		}
		created, err = r.Store.Create(ctx, attempt, validate, options)
		return err
	})
	return created, err
}

// Update changes an object, or creates it. Where the kind allocates, it replaces the
// library's method.
func (r *REST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	stack.Grow()
	if r.kind.behaviour.allocate == nil {
		return r.Store.Update(ctx, name, info, create, update, forceAllowCreate, options)
	}
	var updated runtime.Object
	var created bool
	err := r.allocating(ctx, name, func(a *allocation) (err error) {
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

// allocate completes an object with values. old is nil if there is none yet.
func (r *REST) allocate(a *allocation, obj, old runtime.Object) error {
	errs, err := r.kind.behaviour.allocate(a, obj, old)
	if len(errs) > 0 {
		return apierrors.NewInvalid(r.kind.GVK().GroupKind(), metaOf(obj).GetName(), errs)
	}
	return err
}
