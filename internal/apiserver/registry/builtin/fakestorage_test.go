package builtin

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// fakeStorage is an in-memory storage for tests of registries. It has no watches, and its
// continue tokens are keys.
type fakeStorage struct {
	storage.Interface                   // panics on missing methods
	services          registry.Resource // the row whose values it keeps unique

	mu       sync.Mutex
	objects  map[string]runtime.Object // by key, guarded by mu
	revision uint64                    // guarded by mu
	lists    int                       // how many pages were read, guarded by mu
}

func newFakeStorage() *fakeStorage {
	rows := Resources()
	services := slices.IndexFunc(rows, func(r registry.Resource) bool { return r.Plural == "services" })
	return &fakeStorage{objects: map[string]runtime.Object{}, services: rows[services]}
}

// fakeConfig makes registries that store in memory and delete by a Deleter.
func fakeConfig(m *fakeStorage, d registry.Deleter) registry.Config {
	return registry.Config{RESTOptions: m, Deleter: d, Now: testNow}
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (m *fakeStorage) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig:           &storagebackend.ConfigForResource{GroupResource: resource},
		ResourcePrefix:          resource.Resource,
		EnableGarbageCollection: true,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
			storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return m, func() {}, nil
		},
	}, nil
}

func (m *fakeStorage) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (m *fakeStorage) ReadinessCheck() error { return nil }

func (m *fakeStorage) storeLocked(key string, obj, out runtime.Object) {
	m.revision++
	metaOf(obj).SetResourceVersion(strconv.FormatUint(m.revision, 10))
	m.objects[key] = obj.DeepCopyObject()
	copyInto(out, obj)
}

func (m *fakeStorage) Create(_ context.Context, key string, obj, out runtime.Object, _ uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[key] != nil {
		return storage.NewKeyExistsError(key, 0)
	}
	if err := m.takenLocked(key, obj); err != nil {
		return err
	}
	m.storeLocked(key, obj.DeepCopyObject(), out)
	return nil
}

// takenLocked returns an error if another object has one of this object's unique values.
func (m *fakeStorage) takenLocked(key string, obj runtime.Object) error {
	if _, ok := obj.(*corev1.Service); !ok {
		return nil
	}
	values := m.services.Strategy.Unique
	for other, there := range m.objects {
		if _, ok := there.(*corev1.Service); !ok || other == key {
			continue
		}
		for _, value := range values(obj) {
			if slices.Contains(values(there), value) {
				return allocation.TakenError{Value: value, Holder: other}
			}
		}
	}
	return nil
}

func (m *fakeStorage) Get(_ context.Context, key string, _ storage.GetOptions, out runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	obj := m.objects[key]
	if obj == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	copyInto(out, obj)
	return nil
}

func (m *fakeStorage) Delete(ctx context.Context, key string, out runtime.Object, p *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	obj := m.objects[key]
	if obj == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if err := p.Check(key, obj); err != nil {
		return err
	}
	if err := validate(ctx, obj.DeepCopyObject()); err != nil {
		return err
	}
	delete(m.objects, key)
	m.revision++
	metaOf(obj).SetResourceVersion(strconv.FormatUint(m.revision, 10))
	copyInto(out, obj)
	return nil
}

// GuaranteedUpdate holds no lock while tryUpdate runs: it may read other objects.
func (m *fakeStorage) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, ignoreNotFound bool, p *storage.Preconditions,
	tryUpdate storage.UpdateFunc, _ runtime.Object,
) error {
	for {
		m.mu.Lock()
		obj, revision := m.objects[key], m.revision
		m.mu.Unlock()
		switch {
		case obj != nil:
			obj = obj.DeepCopyObject()
		case ignoreNotFound:
			obj, revision = newLike(out), 0
		default:
			return storage.NewKeyNotFoundError(key, 0)
		}
		if err := p.Check(key, obj); err != nil {
			return err
		}
		version := metaOf(obj).GetResourceVersion()
		updated, _, err := tryUpdate(obj, storage.ResponseMeta{ResourceVersion: revision})
		if err != nil {
			return err
		}
		if done, err := m.replace(key, version, updated.DeepCopyObject(), out); done || err != nil {
			return err
		}
	}
}

// replace stores an object if its current version is the given one.
func (m *fakeStorage) replace(key, version string, obj, out runtime.Object) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := ""
	if there := m.objects[key]; there != nil {
		now = metaOf(there).GetResourceVersion()
	}
	if now != version {
		return false, nil
	}
	if err := m.takenLocked(key, obj); err != nil {
		return false, err
	}
	m.storeLocked(key, obj, out)
	return true, nil
}

func (m *fakeStorage) GetList(_ context.Context, prefix string, opts storage.ListOptions, list runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	var items []runtime.Object
	last, more := "", false
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= opts.Predicate.Continue {
			continue
		}
		if ok, err := opts.Predicate.Matches(m.objects[key]); err != nil || !ok {
			continue
		}
		if opts.Predicate.Limit > 0 && int64(len(items)) == opts.Predicate.Limit {
			more = true
			break
		}
		items, last = append(items, m.objects[key].DeepCopyObject()), key
	}
	if err := meta.SetList(list, items); err != nil {
		return err
	}
	page, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	page.SetResourceVersion(strconv.FormatUint(m.revision, 10))
	if more {
		page.SetContinue(last)
	}
	return nil
}

func (m *fakeStorage) has(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[key] != nil
}

func (m *fakeStorage) pages() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists
}

// newLike returns an empty object of the same kind.
func newLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}

// copyInto copies obj to out.
func copyInto(out, obj runtime.Object) {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(obj.DeepCopyObject()).Elem())
}

// fakeDeleter is a Deleter on a fakeStorage.
type fakeDeleter struct{}

func (fakeDeleter) Delete(ctx context.Context, d registry.Deletion) (runtime.Object, bool, error) {
	out, stays := d.New(), errors.New("stays")
	var plan deletion.Plan
	decide := func(_ context.Context, obj runtime.Object) (err error) {
		if d.Validate != nil {
			if err := d.Validate(ctx, obj); err != nil {
				return err
			}
		}
		plan, err = deletion.Decide(obj, d.Options, d.Strategy, testNow())
		if _, gone := plan.(deletion.Remove); err == nil && !gone {
			return stays
		}
		return err
	}
	err := d.Storage.Delete(ctx, d.Key, out, &storage.Preconditions{}, decide, false, nil, storage.DeleteOptions{})
	if !errors.Is(err, stays) {
		return out, err == nil, storeerr.InterpretDeleteError(err, d.Resource, d.Name)
	}
	err = d.Storage.GuaranteedUpdate(ctx, d.Key, out, false, &storage.Preconditions{}, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		if mark, ok := plan.(deletion.Mark); ok {
			return obj, mark.Apply(obj)
		}
		return obj, nil
	}), false, nil)
	return out, false, storeerr.InterpretDeleteError(err, d.Resource, d.Name)
}

// registries returns the registries of a resource on a fake storage. The main one deletes
// collections regardless of the row; TestServedVerbsFollowFromTheStorages checks that the rows' setting is respected.
func registries(t *testing.T, plural string, d registry.Deleter) (*fakeStorage, *registry.REST, map[string]rest.Storage) {
	t.Helper()
	m := newFakeStorage()
	resource := rowFor(t, plural)
	resource.NoDeleteCollection = false
	storages, err := registry.NewStorages(resource, NewSchemes().Hub, fakeConfig(m, d))
	if err != nil {
		t.Fatal(err)
	}
	return m, storages[plural].(*registry.REST), storages
}

// mainREST returns the main registry of a resource, for its strategies.
func mainREST(t *testing.T, resource registry.Resource, schemes registry.Schemes) *registry.REST {
	t.Helper()
	resource.NoDeleteCollection = false
	storages, err := registry.NewStorages(resource, schemes.Hub, fakeConfig(newFakeStorage(), fakeDeleter{}))
	if err != nil {
		t.Fatal(err)
	}
	return storages[resource.Plural].(*registry.REST)
}
