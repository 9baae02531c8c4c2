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
	// collectionPage is the number of objects listed before the first of them is deleted.
	collectionPage = 500
	// collectionWorkers is the number of objects of a collection that are deleted concurrently.
	collectionWorkers = 8
)

// DeleteCollection deletes the objects that the list options select, page by page, each along the path of a single
// deletion and with options of its own. An object that is already gone counts as deleted. An object that cannot be
// deleted does not stop the others; its error is in the result. The response is the list of the objects as they were
// before, as from kube-apiserver.
func (r *REST) DeleteCollection(
	ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, selection *internalversion.ListOptions,
) (runtime.Object, error) {
	r.warnOfOrphans(ctx, options)
	page := &internalversion.ListOptions{}
	if selection != nil {
		page = selection.DeepCopy()
	}
	// A limit means: delete at most that many objects, not all of them.
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

// deleteAll deletes objects concurrently. It returns the errors by index.
func (r *REST) deleteAll(ctx context.Context, items []runtime.Object, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) []error {
	errs := make([]error, len(items))
	workqueue.ParallelizeUntil(ctx, collectionWorkers, len(items), func(i int) {
		// A deletion writes into its options, so each gets a copy.
		_, _, err := r.Delete(ctx, metaOf(items[i]).GetName(), validate, options.DeepCopy())
		if !apierrors.IsNotFound(err) {
			errs[i] = err
		}
	})
	return errs
}

// deletedCollection collects the outcomes of the deletions.
type deletedCollection struct {
	first runtime.Object // the first page, whose metadata the response has
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

// CollectionError combines the errors of several objects into one API error. It has the reason and code of the first
// error, for clients that act on them, and its message counts the errors out of the number of objects. errs must not be
// empty.
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
