package registry

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
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
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Config is what registries are made with. All fields but Ranges are required.
type Config struct {
	// RESTOptions says where and how the objects of a resource are stored.
	RESTOptions generic.RESTOptionsGetter
	// Deleter carries out deletions.
	Deleter Deleter
	// Now is the clock that ages in tables are reckoned by.
	Now func() time.Time

	// Ranges are where services get their addresses from; zero: the usual ones.
	Ranges Ranges

	// directory is where registries find each other. Groups makes it.
	directory directory
}

// Groups makes the API groups of all rows, in the order of the table, as the
// server installs them.
func Groups(schemes Schemes, c Config) ([]*genericapiserver.APIGroupInfo, error) {
	groups := &groups{schemes: schemes, byName: map[string]*genericapiserver.APIGroupInfo{}}
	var legacy []func()
	c.directory = directory{}
	for _, k := range Table() {
		storages, err := Storages(k, schemes.Hub, c)
		if err != nil {
			return nil, err
		}
		groups.add(k.GroupVersion, storages)
		for _, version := range k.legacyVersions() {
			legacy = append(legacy, func() { groups.add(version, legacyStorages(k, version, storages)) })
		}
	}
	for _, add := range legacy {
		add() // last: clients prefer the group that they see first
	}
	return groups.list, nil
}

// groups gathers the endpoints of API groups.
type groups struct {
	schemes Schemes
	list    []*genericapiserver.APIGroupInfo
	byName  map[string]*genericapiserver.APIGroupInfo
}

func (g *groups) add(version schema.GroupVersion, storages map[string]rest.Storage) {
	group := g.byName[version.Group]
	if group == nil {
		info := genericapiserver.NewDefaultAPIGroupInfo(version.Group, g.schemes.Hub, g.schemes.ParameterCodec, g.schemes.Codecs)
		group = &info
		g.byName[version.Group] = group
		g.list = append(g.list, group)
	}
	if group.VersionedResourcesStorageMap[version.Version] == nil {
		group.VersionedResourcesStorageMap[version.Version] = map[string]rest.Storage{}
	}
	maps.Copy(group.VersionedResourcesStorageMap[version.Version], storages)
}

// Storages makes the registries of a row, by path: "pods", "pods/status", "pods/binding".
func Storages(k Kind, typer runtime.ObjectTyper, c Config) (map[string]rest.Storage, error) {
	s := newStrategy(k, typer)
	store, err := newStore(k, s, c)
	if err != nil {
		return nil, fmt.Errorf("make the registry of %s: %w", k.GroupResource(), err)
	}
	main := &REST{Store: store, kind: k, deleter: c.Deleter, now: c.Now, pageSize: collectionPage, ranges: c.Ranges, pick: rand.Uint64N}
	if main.ranges == (Ranges{}) {
		main.ranges = DefaultRanges()
	}
	if c.directory != nil {
		c.directory[k.GroupResource()] = main
	}
	storages := map[string]rest.Storage{k.Resource: main}
	if k.OneByOne {
		storages[k.Resource] = &oneByOneREST{REST: main}
	}
	if k.HasStatus() {
		storages[k.Resource+"/status"] = main.part(partStrategy{
			strategy: s, take: k.behaviour.status, complete: k.behaviour.reporting, other: "spec", validate: k.behaviour.validateStatus,
		})
	}
	if k.behaviour.scale != nil {
		storages[k.Resource+"/scale"] = &scaleREST{store: store, kind: k, as: autoscalingv1.SchemeGroupVersion}
	}
	for name, endpoint := range k.behaviour.endpoints(main) {
		storages[k.Resource+"/"+name] = endpoint
	}
	return storages, nil
}

// newStore makes the library's registry of a kind.
func newStore(k Kind, s strategy, c Config) (*genericregistry.Store, error) {
	store := &genericregistry.Store{
		NewFunc:                   k.New,
		NewListFunc:               k.NewList,
		DefaultQualifiedResource:  k.GroupResource(),
		SingularQualifiedResource: k.GroupVersion.WithResource(k.Singular).GroupResource(),
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: k.attributes, IndexFields: k.behaviour.indexed}
		},
		CreateStrategy:      s,
		UpdateStrategy:      s,
		DeleteStrategy:      s,
		ResetFieldsStrategy: s,
		ReturnDeletedObject: k.AnswersWithObject,
		TableConvertor:      tableConvertor{columns: k.columns, now: c.Now},
	}
	store.BeginCreate = func(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		return func(context.Context, bool) {}, k.behaviour.resolve(ctx, c.directory, obj)
	}
	store.BeginUpdate = func(ctx context.Context, obj, _ runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		return func(context.Context, bool) {}, k.behaviour.compare(ctx, c.directory, obj)
	}
	if pending := k.Deletion.Pending; pending != nil {
		// The update that leaves nothing to wait for removes the object (R18).
		store.ShouldDeleteDuringUpdate = func(_ context.Context, _ string, obj, _ runtime.Object) bool { return !pending(obj) }
	}
	if k.TTL > 0 {
		seconds := uint64(k.TTL / time.Second)
		store.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return seconds, nil }
	}
	options := &generic.StoreOptions{RESTOptions: c.RESTOptions, AttrFunc: k.attributes}
	options.TriggerFunc, options.Indexers = k.indexes()
	return store, store.CompleteWithOptions(options)
}

// attributes are what selectors of this kind look at.
func (k Kind) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	m := metaOf(obj)
	set := fields.Set{"metadata.name": m.GetName()}
	if k.Namespaced {
		set["metadata.namespace"] = m.GetNamespace()
	}
	maps.Copy(set, k.behaviour.selectable(obj))
	return m.GetLabels(), set, nil
}

// indexes keeps watchers and lists by an indexed field label from looking at every object.
func (k Kind) indexes() (storage.IndexerFuncs, *cache.Indexers) {
	if len(k.behaviour.indexed) == 0 {
		return nil, nil
	}
	triggers, indexers := storage.IndexerFuncs{}, cache.Indexers{}
	for _, label := range k.behaviour.indexed {
		value := func(obj runtime.Object) string { return k.behaviour.selectable(obj)[label] }
		triggers[label] = value
		indexers[storage.FieldIndex(label)] = func(obj any) ([]string, error) { return []string{value(obj.(runtime.Object))}, nil }
	}
	return triggers, &indexers
}

// REST is the registry of a resource: the library's, with our delete flow.
type REST struct {
	*genericregistry.Store
	kind     Kind
	deleter  Deleter
	now      func() time.Time
	pageSize int64 // of the lists that the deletion of a collection goes through
	ranges   Ranges
	pick     func(n uint64) uint64 // a random number below n
}

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.kind.ShortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return r.kind.Categories }

// part makes the endpoint that changes one part of an object of this registry.
func (r *REST) part(s partStrategy) rest.Storage {
	store := *r.Store
	store.UpdateStrategy, store.ResetFieldsStrategy = s, s
	return &partREST{store: &store}
}

// partREST is an endpoint of an object that changes one part of it.
type partREST struct {
	store *genericregistry.Store
}

// New implements rest.Storage.
func (r *partREST) New() runtime.Object { return r.store.New() }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (r *partREST) Destroy() {}

// Get implements rest.Getter.
func (r *partREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update implements rest.Updater. It never creates, not even by an apply.
func (r *partREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (r *partREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (r *partREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// oneByOne has a DeleteCollection of another signature than the library's.
//
//nolint:unused // it is there to be ambiguous
type oneByOne struct{}

// DeleteCollection makes the method ambiguous in a type that embeds oneByOne and
// REST, so that the type has none and the library offers no such verb.
//
//nolint:unused // it is there to be ambiguous
func (oneByOne) DeleteCollection() {}

// oneByOneREST is a registry whose objects are deleted one by one only.
type oneByOneREST struct {
	*REST
	oneByOne //nolint:unused // it is there to be ambiguous
}
