package reader

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/coppice-dev/coppice/internal/inventory"
)

// pageSize is how many objects a list returns at a time: some megabytes with their managed fields.
const pageSize = 2500

// pageOf is a page of a list.
type pageOf interface {
	runtime.Object
	metav1.ListInterface
}

// list reads all objects of a resource; where the user may not, those of the namespaces that the options
// name.
func (r *reader) list(ctx context.Context, resource *inventory.Resource) error {
	err := r.listIn(ctx, resource, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) && resource.Namespaced && len(r.options.Namespaces) > 0 {
		return r.listEach(ctx, resource, err)
	}
	if err != nil && ctx.Err() == nil {
		r.missed(unread(resource, "", err))
		return nil
	}
	return unless(ctx, err)
}

// listEach reads the objects of a resource in some namespaces, as those of all are forbidden.
func (r *reader) listEach(ctx context.Context, resource *inventory.Resource, forbidden error) error {
	for _, namespace := range r.options.Namespaces {
		if err := r.listIn(ctx, resource, namespace); err != nil {
			if err := unless(ctx, err); err != nil {
				return err
			}
			r.missed(unread(resource, namespace, err))
		}
	}
	other := unread(resource, "", forbidden)
	other.Except = r.options.Namespaces
	r.missed(other)
	return nil
}

func unread(resource *inventory.Resource, namespace string, err error) inventory.Unread {
	return inventory.Unread{Resource: resource.GroupVersionResource, Namespace: namespace, Why: err.Error(), Forbidden: apierrors.IsForbidden(err)}
}

// listIn reads the objects of a resource in a namespace, or in all. It keeps nothing of a list that
// breaks off: a part of the objects would be taken for all.
func (r *reader) listIn(ctx context.Context, resource *inventory.Resource, namespace string) error {
	client := r.metadata.Resource(resource.GroupVersionResource).Namespace(namespace)
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	pages.PageSize, pages.PageBufferSize = pageSize, 1
	var objects []*inventory.Object
	convert := newConverter(resource)
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		object, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("the server answers with %T", item)
		}
		objects = append(objects, convert.object(object))
		return nil
	})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return errors.New("discovery names it, but the server does not serve it")
	case err != nil:
		return err //nolint:wrapcheck // the server's words
	}
	r.keep(objects)
	return nil
}

// each reads the whole objects of a built-in resource of group "", page by page.
func (r *reader) each(ctx context.Context, client rest.Interface, resource string, newPage func() pageOf, visit func(pageOf)) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page := newPage()
		if err := client.Get().Resource(resource).VersionedParams(&options, scheme.ParameterCodec).Do(ctx).Into(page); err != nil {
			return err //nolint:wrapcheck // the server's words
		}
		visit(page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}
