package builtin

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/rules/deletion"
	"github.com/coppice-dev/coppice/internal/testing/memorystore"
)

// newFakeStorage returns a storage in memory that keeps the values of services unique.
func newFakeStorage() *memorystore.Store {
	rows := Resources()
	values := rows[slices.IndexFunc(rows, func(r registry.Resource) bool { return r.Plural == "services" })].Strategy.Unique
	m := memorystore.New()
	m.Refuse = func(key string, obj runtime.Object, others map[string]runtime.Object) error {
		if _, ok := obj.(*corev1.Service); !ok {
			return nil
		}
		for other, there := range others {
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
	return m
}

// fakeConfig makes registries that store in memory and delete by a Deleter.
func fakeConfig(m *memorystore.Store, d registry.Deleter) registry.Config {
	return registry.Config{RESTOptions: m, Deleter: d, Now: testNow}
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
func registries(t *testing.T, plural string, d registry.Deleter) (*memorystore.Store, *registry.REST, map[string]rest.Storage) {
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
