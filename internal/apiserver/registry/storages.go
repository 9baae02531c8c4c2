package registry

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

// Config configures the registries. All fields are required.
type Config struct {
	// RESTOptions returns where and how the objects of a resource are stored.
	RESTOptions generic.RESTOptionsGetter
	// Deleter carries out deletions.
	Deleter Deleter
	// Now is the clock for ages in tables and for the time of a pod's binding.
	Now func() time.Time
	// Serves reports whether a resource or subresource is served. Nil: all are.
	Serves func(version schema.GroupVersion, path string) bool

	// registries lets registries find each other. APIGroups sets it.
	registries Registries
}

// NewStorages returns the storages of a resource, by path: "pods", "pods/status",
// "pods/binding".
func NewStorages(resource Resource, typer runtime.ObjectTyper, c Config) (map[string]rest.Storage, error) {
	s := newRESTStrategy(resource, typer, c.registries)
	store, err := newStore(resource, s, c)
	if err != nil {
		return nil, fmt.Errorf("make the registry of %s: %w", resource.GroupResource(), err)
	}
	main := &REST{Store: store, Resource: resource, Now: c.Now, deleter: c.Deleter}
	if c.registries != nil {
		c.registries[resource.GroupResource()] = main
	}
	storages := map[string]rest.Storage{resource.Plural: main}
	if resource.NoDeleteCollection {
		storages[resource.Plural] = withoutDeleteCollection{main}
	}
	if resource.HasStatus() {
		storages[resource.Plural+"/status"] = main.subresource(subresourceStrategy{
			restStrategy: s, copyPart: resource.Strategy.CopyStatus, complete: resource.Strategy.PrepareForStatusUpdate,
			sibling: "spec", validate: resource.Strategy.ValidateStatusUpdate, validateWith: resource.Strategy.ValidateWith,
			warn: resource.Strategy.WarnOfStatus,
		})
	}
	if resource.Strategy.Scale != nil {
		storages[resource.Plural+"/scale"] = &scaleREST{store: store, resource: resource, as: autoscalingv1.SchemeGroupVersion}
	}
	for name, endpoint := range resource.Strategy.Subresources(main) {
		storages[resource.Plural+"/"+name] = endpoint
	}
	return storages, nil
}

// newStore returns the generic registry of k8s.io/apiserver for a resource.
func newStore(resource Resource, s restStrategy, c Config) (*genericregistry.Store, error) {
	store := &genericregistry.Store{
		NewFunc:                   resource.New,
		NewListFunc:               resource.NewList,
		DefaultQualifiedResource:  resource.GroupResource(),
		SingularQualifiedResource: resource.GroupVersion.WithResource(resource.Singular).GroupResource(),
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: resource.attributes, IndexFields: resource.Strategy.IndexedFields}
		},
		CreateStrategy:      s,
		UpdateStrategy:      s,
		DeleteStrategy:      s,
		ResetFieldsStrategy: s,
		ReturnDeletedObject: resource.ReturnDeletedObject,
		TableConvertor:      table.Convertor{Columns: resource.Columns, Now: c.Now},
	}
	store.BeginCreate = func(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		return func(context.Context, bool) {}, resource.Strategy.BeginCreate(ctx, c.registries, obj)
	}
	store.BeginUpdate = func(ctx context.Context, obj, _ runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		return func(context.Context, bool) {}, resource.Strategy.BeginUpdate(ctx, c.registries, obj)
	}
	if pending := resource.Deletion.Pending; pending != nil {
		// The update that leaves nothing to wait for removes the object (R18).
		store.ShouldDeleteDuringUpdate = func(_ context.Context, _ string, obj, _ runtime.Object) bool { return !pending(obj) }
	}
	if resource.TTL > 0 {
		seconds := uint64(resource.TTL / time.Second)
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return seconds, nil }
	}
	options := &generic.StoreOptions{RESTOptions: c.RESTOptions, AttrFunc: resource.attributes}
	options.TriggerFunc, options.Indexers = resource.indexes()
	return store, store.CompleteWithOptions(options)
}
