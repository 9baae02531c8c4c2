// Package memorystore is a storage.Interface in memory, for tests that call registries without a server. It has no
// watches, and its continue tokens are keys.
package memorystore

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Store holds objects by key. Create and update store what the registries send, and return it.
type Store struct {
	storage.Interface // panics on missing methods

	// Refuse, if it is not nil, returns an error if an object cannot be stored beside the others.
	Refuse func(key string, obj runtime.Object, others map[string]runtime.Object) error
	// Codec, if it is not nil, returns the form in which a resource is stored. A dry run needs it; other objects are
	// kept as they are.
	Codec func(schema.GroupResource) runtime.Codec
	// Reread, if it is not nil, returns an object as it is read after it was stored, such as with defaults.
	Reread func(runtime.Object) runtime.Object

	mu       sync.Mutex
	objects  map[string]runtime.Object // by key, guarded by mu
	revision uint64                    // guarded by mu
	lists    int                       // how many pages were read, guarded by mu
}

// New returns an empty store.
func New() *Store { return &Store{objects: map[string]runtime.Object{}} }

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s *Store) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := &storagebackend.ConfigForResource{GroupResource: resource}
	if s.Codec != nil {
		config.Codec = s.Codec(resource)
	}
	return generic.RESTOptions{
		StorageConfig:           config,
		ResourcePrefix:          resource.Resource,
		EnableGarbageCollection: true,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
			storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return s, func() {}, nil
		},
	}, nil
}

// Versioner implements storage.Interface.
func (s *Store) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// ReadinessCheck implements storage.Interface.
func (s *Store) ReadinessCheck() error { return nil }

func (s *Store) storeLocked(key string, obj, out runtime.Object) {
	s.revision++
	metaOf(obj).SetResourceVersion(strconv.FormatUint(s.revision, 10))
	if s.Reread != nil {
		obj = s.Reread(obj)
	}
	s.objects[key] = obj.DeepCopyObject()
	copyInto(out, obj)
}

// refusalLocked returns an error if the object cannot be stored beside the others.
func (s *Store) refusalLocked(key string, obj runtime.Object) error {
	if s.Refuse == nil {
		return nil
	}
	return s.Refuse(key, obj, s.objects)
}

// Create implements storage.Interface.
func (s *Store) Create(_ context.Context, key string, obj, out runtime.Object, _ uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[key] != nil {
		return storage.NewKeyExistsError(key, 0)
	}
	if err := s.refusalLocked(key, obj); err != nil {
		return err
	}
	s.storeLocked(key, obj.DeepCopyObject(), out)
	return nil
}

// Get implements storage.Interface.
func (s *Store) Get(_ context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj := s.objects[key]
	switch {
	case obj != nil:
		copyInto(out, obj)
	case options.IgnoreNotFound:
		copyInto(out, newLike(out))
	default:
		return storage.NewKeyNotFoundError(key, 0)
	}
	return nil
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, out runtime.Object, p *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj := s.objects[key]
	if obj == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if err := p.Check(key, obj); err != nil {
		return err
	}
	if err := validate(ctx, obj.DeepCopyObject()); err != nil {
		return err
	}
	delete(s.objects, key)
	s.revision++
	metaOf(obj).SetResourceVersion(strconv.FormatUint(s.revision, 10))
	copyInto(out, obj)
	return nil
}

// GuaranteedUpdate implements storage.Interface. It holds no lock while tryUpdate runs: it may read other objects.
func (s *Store) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, ignoreNotFound bool, p *storage.Preconditions,
	tryUpdate storage.UpdateFunc, _ runtime.Object,
) error {
	for {
		s.mu.Lock()
		obj, revision := s.objects[key], s.revision
		s.mu.Unlock()
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
		if done, err := s.replace(key, version, updated.DeepCopyObject(), out); done || err != nil {
			return err
		}
	}
}

// replace stores an object if its current version is the given one.
func (s *Store) replace(key, version string, obj, out runtime.Object) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := ""
	if there := s.objects[key]; there != nil {
		now = metaOf(there).GetResourceVersion()
	}
	if now != version {
		return false, nil
	}
	if err := s.refusalLocked(key, obj); err != nil {
		return false, err
	}
	s.storeLocked(key, obj, out)
	return true, nil
}

// GetList implements storage.Interface.
func (s *Store) GetList(_ context.Context, prefix string, opts storage.ListOptions, list runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	var items []runtime.Object
	last, more := "", false
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= opts.Predicate.Continue {
			continue
		}
		if ok, err := opts.Predicate.Matches(s.objects[key]); err != nil || !ok {
			continue
		}
		if opts.Predicate.Limit > 0 && int64(len(items)) == opts.Predicate.Limit {
			more = true
			break
		}
		items, last = append(items, s.objects[key].DeepCopyObject()), key
	}
	if err := meta.SetList(list, items); err != nil {
		return err
	}
	page, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	page.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	if more {
		page.SetContinue(last)
	}
	return nil
}

// Has reports whether there is an object with a key.
func (s *Store) Has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key] != nil
}

// Change changes every stored object in place, such as to mark it as being deleted.
func (s *Store) Change(change func(metav1.Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, obj := range s.objects {
		change(metaOf(obj))
	}
}

// Clear removes all objects.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects)
}

// Pages returns how many pages of lists were read.
func (s *Store) Pages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func metaOf(obj runtime.Object) metav1.Object { return obj.(metav1.Object) }

// newLike returns an empty object of the same kind.
func newLike(obj runtime.Object) runtime.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
}

// copyInto copies obj to out.
func copyInto(out, obj runtime.Object) {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(obj.DeepCopyObject()).Elem())
}
