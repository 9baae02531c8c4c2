package fakes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ForClient returns a collector for the objects of a fake client of controller-runtime.
func ForClient(c client.WithWatch) Collector { return Collector{clientStore{c}} }

// Interceptor returns functions for the builder of a fake client of controller-runtime: they set
// UIDs on create, and delete objects as a server does. Objects that are passed to the builder must
// already have UIDs.
func Interceptor() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if obj.GetUID() == "" {
				obj.SetUID(uuid.NewUUID())
			}
			return c.Create(ctx, obj, opts...)
		},
		Delete:      deleteThrough,
		DeleteAllOf: deleteAllThrough,
	}
}

// deleteThrough deletes an object as a server does.
func deleteThrough(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	kind, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), stored); err != nil {
		return err
	}
	options := (&client.DeleteOptions{}).ApplyOptions(opts).AsDeleteOptions()
	if len(options.DryRun) > 0 {
		return nil
	}
	return remove(ctx, clientStore{c}, object{stored, kind, stored}, options)
}

// deleteAllThrough deletes the objects of a kind as a server does.
func deleteAllThrough(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
	kind, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return fmt.Errorf("delete all: %w", err)
	}
	options := (&client.DeleteAllOfOptions{}).ApplyOptions(opts)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, list, &options.ListOptions); err != nil {
		return err
	}
	for i := range list.Items {
		if err := deleteThrough(ctx, c, &list.Items[i], &options.DeleteOptions); err != nil {
			return err
		}
	}
	return nil
}

// clientStore implements Store with a fake client.
type clientStore struct{ client client.WithWatch }

// Kinds implements Store.
func (s clientStore) Kinds() []schema.GroupVersionKind { return kindsOf(s.client.Scheme()) }

// Objects implements Store.
func (s clientStore) Objects(ctx context.Context, kind schema.GroupVersionKind) ([]runtime.Object, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := s.client.List(ctx, list); err != nil {
		return nil, err
	}
	all := make([]runtime.Object, 0, len(list.Items))
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// Write implements Store. The fake client removes a terminating object without finalizers.
func (s clientStore) Write(ctx context.Context, _ schema.GroupVersionKind, o runtime.Object) error {
	obj, err := clientObject(o)
	if err != nil {
		return err
	}
	return s.client.Update(ctx, obj)
}

// Mark implements Store. Only a Delete of the fake client can mark an object, and only one with
// finalizers.
func (s clientStore) Mark(ctx context.Context, kind schema.GroupVersionKind, o runtime.Object) error {
	obj, err := clientObject(o)
	if err != nil {
		return err
	}
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	if err := s.client.Update(ctx, obj); err != nil {
		return err
	}
	return s.Remove(ctx, kind, obj)
}

// Remove implements Store. It sets no propagation policy: Interceptor would apply it again, and the
// finalizers already express it.
func (s clientStore) Remove(ctx context.Context, _ schema.GroupVersionKind, o runtime.Object) error {
	obj, err := clientObject(o)
	if err != nil {
		return err
	}
	return s.client.Delete(ctx, obj)
}

func clientObject(o runtime.Object) (client.Object, error) {
	obj, ok := o.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is not an object", o)
	}
	return obj, nil
}

// kindsOf returns the kinds of a scheme that have lists, sorted.
func kindsOf(scheme *runtime.Scheme) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for kind := range scheme.AllKnownTypes() {
		if kind.Version != runtime.APIVersionInternal && scheme.Recognizes(kind.GroupVersion().WithKind(kind.Kind+"List")) && isObject(scheme, kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

func isObject(scheme *runtime.Scheme, kind schema.GroupVersionKind) bool {
	o, err := scheme.New(kind)
	if err != nil {
		return false
	}
	_, err = meta.Accessor(o)
	return err == nil
}

// NewUID returns a UID for an object that a fake is created with.
func NewUID() types.UID { return uuid.NewUUID() }
