package deleteflow

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

type contextKey int

const (
	requestKey contextKey = iota
	plannedKey
)

// request is what Guard must know of the HTTP request that a storage call is part of.
type request struct {
	deletes bool // DELETE, of one object or a collection
	tries   int  // how often it may still begin anew (anew.go)
	// refused is set if the request is about a collection (collection.go).
	refused *refusals

	mu sync.Mutex
	// options of the DELETE as the client sent them; nil until admission has run for
	// the first object. Guarded by mu, and not changed.
	options *metav1.DeleteOptions
	// version is that of the object on which the last update was worked out; empty
	// before. An update is about one object. Guarded by mu.
	version string
	// removedUID and removedVersion are the uid of the object that the request has
	// removed, and the resourceVersion of the removal. Guarded by mu.
	removedUID     types.UID
	removedVersion string
	// void: the request begins anew, and what it would answer now counts for nothing.
	// Guarded by mu.
	void bool
}

// WithRequest is an HTTP filter: it gives each writing request the place where
// Guard and Conveyor meet. Errors of its own are answered in one of codecs.
func WithRequest(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := genericrequest.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		switch info.Verb {
		case "delete", "update", "patch":
			serveAnew(next, w, r, info.Verb)
		case "deletecollection":
			serveCollection(next, codecs, w, r, info)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func withRequest(r *http.Request, about *request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), requestKey, about))
}

func requestFrom(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey).(*request)
	return r
}

// planned marks storage calls that Flow makes: their plan is made already.
func planned(ctx context.Context) context.Context {
	return context.WithValue(ctx, plannedKey, true)
}

func isPlanned(ctx context.Context) bool {
	done, _ := ctx.Value(plannedKey).(bool)
	return done
}

// keep keeps the options of a DELETE as they were first told, and returns them.
func (r *request) keep(options *metav1.DeleteOptions) *metav1.DeleteOptions {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options == nil {
		r.options = options.DeepCopy()
	}
	return r.options
}

// deleteOptions are the options of a DELETE; nil when admission was not asked.
func (r *request) deleteOptions() *metav1.DeleteOptions {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.options
}

// see remembers what an update is worked out on.
func (r *request) see(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = m.GetResourceVersion()
	return nil
}

// unchanged is the condition under which an object is removed because an update
// leaves it with nothing to wait for (R18). Such an update is never written, so the
// removal holds only for the very state that it was worked out on. When anything else
// happened meanwhile, be it a finalizer, a longer wait, or another object under the
// name, the update has to be worked out again.
func (r *request) unchanged(validate storage.ValidateObjectFunc) storage.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		m, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		r.mu.Lock()
		seen := r.version
		r.mu.Unlock()
		if m.GetResourceVersion() != seen {
			return errChanged
		}
		return validate(ctx, obj)
	}
}

// remember keeps what was removed, in its last state.
func (r *request) remember(removed runtime.Object) {
	m, err := meta.Accessor(removed)
	if r == nil || err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removedUID, r.removedVersion = m.GetUID(), m.GetResourceVersion()
}

// removal is what remember has kept.
func (r *request) removal() (types.UID, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.removedUID, r.removedVersion
}

func (r *request) canBeginAnew() bool { return r != nil && r.tries > 0 }

// beginAnew voids what the request has done. The error is for the registry, and for
// a client whose request has begun anew too often: a conflict.
func (r *request) beginAnew(key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.void = r.tries > 0
	return storage.NewInvalidObjError(key, "the object was changed while it was being removed; try again")
}

func (r *request) isVoid() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.void
}
