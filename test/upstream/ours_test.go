package upstream

import (
	"slices"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ours returns our registries, as the server makes them, on a storage in memory.
func ours(t *testing.T, schemes registry.Schemes) *side {
	t.Helper()
	rows := builtin.Resources()
	store := newStore(schemes.Hub)
	store.Refuse = func(key string, obj runtime.Object, others map[string]runtime.Object) error {
		if _, ok := obj.(*corev1.Service); !ok {
			return nil
		}
		unique := rows[slices.IndexFunc(rows, func(r registry.Resource) bool { return r.Plural == "services" })].Strategy.Unique
		for other, there := range others {
			for _, value := range unique(obj) {
				if _, ok := there.(*corev1.Service); ok && other != key && slices.Contains(unique(there), value) {
					return allocation.TakenError{Value: value, Holder: other}
				}
			}
		}
		return nil
	}
	groups, err := builtin.APIGroups(schemes, registry.Config{RESTOptions: store, Now: time.Now}, core.DefaultServiceRanges())
	if err != nil {
		t.Fatal(err)
	}
	s := newSide("ours", store)
	for _, group := range groups {
		s.add(group)
	}
	s.createOthers(t)
	return s
}
