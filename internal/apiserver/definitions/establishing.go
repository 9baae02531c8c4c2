package definitions

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"
)

const (
	// longestWait is the time after which a definition that is not in the informer is forgotten,
	// because it was deleted at once.
	longestWait = 5 * time.Second
	// waitInterval is the time between two checks of the informer.
	waitInterval = time.Millisecond
)

// Establisher establishes definitions.
type Establisher struct {
	now func() time.Time
	// definitions returns the store of the informer of definitions, and whether the informer has synced.
	definitions func() (known cache.Store, synced bool)
	// waits reports whether requests for custom resources wait until the server knows the definition.
	waits func() bool

	mu      sync.Mutex
	pending map[string]created // guarded by mu; by name
	waiting atomic.Int64       // the length of pending
}

// created is a definition that was created here and may not be in the informer yet.
type created struct {
	claim
	group string
	uid   types.UID
	until time.Time
}

// NewEstablisher returns an Establisher. definitions returns the store of the informer of definitions, which is nil
// until the API is installed, and whether the informer has synced. Until then, nothing is established; nor is it on a
// store that other servers share, for which definitions always returns nil. waits reports whether requests for the
// objects of a new definition wait until the informer has it; otherwise they are answered with 404.
func NewEstablisher(now func() time.Time, definitions func() (known cache.Store, synced bool), waits func() bool) *Establisher {
	return &Establisher{now: now, definitions: definitions, waits: waits, pending: make(map[string]created)}
}

// Transform is a cache.TransformFunc for that informer. It prevents the handler of custom resources
// from delaying requests (inEffect).
func (e *Establisher) Transform(obj any) (any, error) {
	if definition, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		inEffect(definition, e.now())
	}
	return obj, nil
}

// Wrap is a storage.Wrap, for the storage of CustomResourceDefinitions.
func (e *Establisher) Wrap(resource schema.GroupResource, inner storage.Interface) storage.Interface {
	if resource != apiextensions.Resource("customresourcedefinitions") {
		return inner
	}
	return &establishingStorage{inner, e}
}

type establishingStorage struct {
	storage.Interface
	establisher *Establisher
}

// Create implements storage.Interface.
func (s *establishingStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	definition, ok := obj.(*apiextensions.CustomResourceDefinition)
	if !ok || !s.establisher.claim(definition) {
		return s.Interface.Create(ctx, key, obj, out, ttl)
	}
	effective := *definition
	effective.Status, _ = established(definition, metav1.NewTime(s.establisher.now()))
	err := s.Interface.Create(ctx, key, &effective, out, ttl)
	if err != nil {
		s.establisher.forget(definition)
	}
	return err
}

// claim reports whether a new definition can be established, and reserves its names.
func (e *Establisher) claim(definition *apiextensions.CustomResourceDefinition) bool {
	store, synced := e.definitions()
	if _, ok := established(definition, metav1.Time{}); !ok || store == nil || !synced {
		return false
	}
	names := definition.Spec.Names
	mine := created{
		claim: claimOf(names.Plural, names.Singular, names.ShortNames, names.Kind, names.ListKind),
		group: definition.Spec.Group, uid: definition.UID, until: e.now().Add(longestWait),
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settleLocked(store)
	for name, other := range e.pending {
		if name == definition.Name || other.group == mine.group && mine.conflicts(other.claim) {
			return false
		}
	}
	for _, obj := range store.List() {
		other, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || other.Spec.Group != mine.group || other.Name == definition.Name {
			continue
		}
		accepted := other.Status.AcceptedNames
		if mine.conflicts(claimOf(accepted.Plural, accepted.Singular, accepted.ShortNames, accepted.Kind, accepted.ListKind)) {
			return false
		}
	}
	e.pending[definition.Name] = mine
	e.waiting.Store(int64(len(e.pending)))
	return true
}

// forget drops a claim whose definition was not created.
func (e *Establisher) forget(definition *apiextensions.CustomResourceDefinition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending[definition.Name].uid == definition.UID {
		delete(e.pending, definition.Name)
		e.waiting.Store(int64(len(e.pending)))
	}
}

// settleLocked drops pending definitions that the informer has or that have expired.
func (e *Establisher) settleLocked(store cache.Store) {
	for name, c := range e.pending {
		obj, _, _ := store.GetByKey(name) // never an error
		if d, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && d.UID == c.uid || e.now().After(c.until) {
			delete(e.pending, name)
		}
	}
	e.waiting.Store(int64(len(e.pending)))
}

// isPending reports whether a definition was created here and is not in the informer yet.
func (e *Establisher) isPending(name string) bool {
	if e.waiting.Load() == 0 {
		return false
	}
	store, _ := e.definitions() // definitions are claimed only once the store has synced
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settleLocked(store)
	_, ok := e.pending[name]
	return ok
}

// WithDefinitions delays requests for custom resources until the server knows their definitions.
func WithDefinitions(next http.Handler, e *Establisher) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := apirequest.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest && info.APIGroup != "" {
			e.await(r.Context(), info.Resource+"."+info.APIGroup)
		}
		next.ServeHTTP(w, r)
	})
}

// await waits until a definition is not pending.
func (e *Establisher) await(ctx context.Context, name string) {
	if !e.isPending(name) || !e.waits() {
		return
	}
	tick := time.NewTicker(waitInterval)
	defer tick.Stop()
	for e.isPending(name) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
