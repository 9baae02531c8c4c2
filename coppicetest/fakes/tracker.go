package fakes

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	clienttesting "k8s.io/client-go/testing"
)

// ForTracker returns a collector for the objects of an object tracker of client-go, with the kinds
// of a scheme:
//
//	client := fake.NewClientset()
//	fakes.Install(&client.Fake, client.Tracker(), scheme.Scheme)
//	steps, err := fakes.ForTracker(client.Tracker(), scheme.Scheme).Run(ctx)
func ForTracker(tracker clienttesting.ObjectTracker, scheme *runtime.Scheme) Collector {
	return Collector{trackerStore{tracker, scheme}}
}

// Install makes a fake of client-go set UIDs on create, and delete objects as a server does.
func Install(fake *clienttesting.Fake, tracker clienttesting.ObjectTracker, scheme *runtime.Scheme) {
	store := trackerStore{tracker, scheme}
	fake.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok || action.GetSubresource() != "" {
			return false, nil, nil
		}
		if o, err := meta.Accessor(create.GetObject()); err == nil && o.GetUID() == "" {
			o.SetUID(uuid.NewUUID())
		}
		return false, nil, nil // the tracker goes on
	})
	fake.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		del, ok := action.(clienttesting.DeleteAction)
		if !ok || action.GetSubresource() != "" {
			return false, nil, nil
		}
		options := del.GetDeleteOptions()
		return true, nil, store.delete(action.GetResource(), action.GetNamespace(), del.GetName(), &options)
	})
}

// trackerStore implements Store with an object tracker.
type trackerStore struct {
	tracker clienttesting.ObjectTracker
	scheme  *runtime.Scheme
}

// delete deletes an object as a server does.
func (s trackerStore) delete(resource schema.GroupVersionResource, namespace, name string, options *metav1.DeleteOptions) error {
	stored, err := s.tracker.Get(resource, namespace, name)
	if err != nil {
		return err
	}
	kinds, _, err := s.scheme.ObjectKinds(stored)
	if err != nil {
		return err
	}
	stored = stored.DeepCopyObject()
	accessor, err := meta.Accessor(stored)
	if err != nil {
		return err
	}
	return remove(context.Background(), s, object{accessor, kinds[0], stored}, options)
}

// Kinds implements Store.
func (s trackerStore) Kinds() []schema.GroupVersionKind { return kindsOf(s.scheme) }

// Objects implements Store.
func (s trackerStore) Objects(_ context.Context, kind schema.GroupVersionKind) ([]runtime.Object, error) {
	list, err := s.tracker.List(resourceOf(kind), kind, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	for i := range items {
		items[i] = items[i].DeepCopyObject()
	}
	return items, nil
}

// Write implements Store.
func (s trackerStore) Write(ctx context.Context, kind schema.GroupVersionKind, o runtime.Object) error {
	accessor, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if accessor.GetDeletionTimestamp() != nil && len(accessor.GetFinalizers()) == 0 {
		return s.Remove(ctx, kind, o)
	}
	return s.tracker.Update(resourceOf(kind), o, accessor.GetNamespace())
}

// Mark implements Store.
func (s trackerStore) Mark(ctx context.Context, kind schema.GroupVersionKind, o runtime.Object) error {
	return s.Write(ctx, kind, o)
}

// Remove implements Store.
func (s trackerStore) Remove(_ context.Context, kind schema.GroupVersionKind, o runtime.Object) error {
	accessor, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	return s.tracker.Delete(resourceOf(kind), accessor.GetNamespace(), accessor.GetName())
}

// resourceOf returns the resource of a kind, as a tracker guesses it.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}
