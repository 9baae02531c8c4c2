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
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/workqueue"
)

const (
	// collectionPage is how many objects are listed before the first of them is deleted.
	collectionPage = 500
	// collectionWorkers is how many objects of a collection are deleted at a time.
	collectionWorkers = 8
)

// DeleteCollection deletes the objects that the list options select, page by page,
// each along the path of a single deletion and with options of its own. An object
// that is gone already counts as deleted. One that cannot be deleted stops none of
// the others, and is in the error. The answer is the list of the objects as they
// were before, as upstream answers.
func (r *REST) DeleteCollection(
	ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, selection *internalversion.ListOptions,
) (runtime.Object, error) {
	page := &internalversion.ListOptions{}
	if selection != nil {
		page = selection.DeepCopy()
	}
	// A client that sets a limit asks for that many objects, not for all of them.
	limited := page.Limit > 0
	if !limited {
		page.Limit = collectionPage
	}
	deleted := deletedCollection{}
	for {
		list, err := r.List(ctx, page)
		if err != nil {
			return nil, err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil, fmt.Errorf("delete a collection of %s: %w", r.Resource.GroupResource(), err)
		}
		deleted.add(list, items, r.deleteAll(ctx, items, validate, options))
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		next, err := meta.ListAccessor(list)
		if err != nil {
			return nil, fmt.Errorf("delete a collection of %s: %w", r.Resource.GroupResource(), err)
		}
		if limited || next.GetContinue() == "" {
			return deleted.answer()
		}
		page.Continue, page.ResourceVersion, page.ResourceVersionMatch = next.GetContinue(), "", ""
	}
}

// deleteAll deletes objects side by side. The errors are by the index of the object.
func (r *REST) deleteAll(ctx context.Context, items []runtime.Object, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) []error {
	errs := make([]error, len(items))
	workqueue.ParallelizeUntil(ctx, collectionWorkers, len(items), func(i int) {
		// Deleting writes into the options, and what one object makes of them is not for the next.
		_, _, err := r.Delete(ctx, metaOf(items[i]).GetName(), validate, options.DeepCopy())
		if !apierrors.IsNotFound(err) {
			errs[i] = err
		}
	})
	return errs
}

// deletedCollection gathers what became of a collection.
type deletedCollection struct {
	first runtime.Object // the first page: its metadata is the answer's
	items []runtime.Object
	errs  []error
}

func (d *deletedCollection) add(list runtime.Object, items []runtime.Object, errs []error) {
	if d.first == nil {
		d.first = list
	}
	d.items = append(d.items, items...)
	for _, err := range errs {
		if err != nil {
			d.errs = append(d.errs, err)
		}
	}
}

func (d *deletedCollection) answer() (runtime.Object, error) {
	if len(d.errs) > 0 {
		return nil, CollectionError(d.errs, len(d.items))
	}
	if err := meta.SetList(d.first, d.items); err != nil {
		return nil, fmt.Errorf("answer the deletion of a collection: %w", err)
	}
	return d.first, nil
}

// CollectionError is one API error for those of several objects out of a number: the
// first one's reason and code, for clients that act on them, and in words how many
// there were. There is at least one.
func CollectionError(errs []error, of int) error {
	if len(errs) == 1 {
		return errs[0]
	}
	var first apierrors.APIStatus
	if !errors.As(errs[0], &first) {
		return errors.Join(errs...)
	}
	status := first.Status()
	status.Message = fmt.Sprintf("%d of %d objects were not deleted, the first one because: %s", len(errs), of, status.Message)
	return &apierrors.StatusError{ErrStatus: status}
}
