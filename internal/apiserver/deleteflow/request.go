package deleteflow

import (
	"bytes"
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

type contextKey int

const (
	requestKey contextKey = iota
	plannedKey
)

// request is the state of an HTTP request that Guard needs in its storage calls.
type request struct {
	deletes bool   // DELETE, of one object or a collection
	reasons bool   // it has a header of a collector or namespace controller
	agent   string // the client program
	tries   int    // remaining tries (retry.go)
	// refused is set if the request is for a collection (collection.go).
	refused *refusals

	mu sync.Mutex
	// options are the client's options of the DELETE; nil until admission has run for the first
	// object. Guarded by mu; the value never changes.
	options *metav1.DeleteOptions
	// version is the resourceVersion of the object from which the last update was computed;
	// empty before. Guarded by mu.
	version string
	// removedUID and removedVersion are the uid of the removed object and the resourceVersion of
	// its removal. Guarded by mu.
	removedUID     types.UID
	removedVersion string
	// answer is the response to a dry run of a DELETE that would remove the object; nil if it would
	// not. Guarded by mu; the value never changes.
	answer *metav1.Status
	// closings are the storage calls that may have to be made while their object is closed, by its name. Guarded by mu.
	closings map[string]*closing
	// discarded is set if the request will be served again, without sending the current response.
	// Guarded by mu.
	discarded bool
}

// WithRequest is an HTTP filter that adds to the context of each writing request the state that
// Guard and OptionsPlugin share. Responses of its own are encoded by one of codecs.
func (f *Flow) WithRequest(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := genericrequest.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		switch info.Verb {
		case "delete":
			var body bytes.Buffer
			serveWithRetries(next, w, r, served{verb: info.Verb, body: &body, instead: f.insteadOfNotFound(codecs, w, r, info, &body)})
		case "update", "patch":
			serveWithRetries(next, w, r, served{verb: info.Verb, body: &bytes.Buffer{}})
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

// planned marks the storage calls of Flow, which Guard lets through: their plan is already made.
func planned(ctx context.Context) context.Context {
	return context.WithValue(ctx, plannedKey, true)
}

func isPlanned(ctx context.Context) bool {
	done, _ := ctx.Value(plannedKey).(bool)
	return done
}

// keepOptions keeps the options of a DELETE before adjustOptions changes them, and returns the kept
// options.
func (r *request) keepOptions(options *metav1.DeleteOptions) *metav1.DeleteOptions {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options == nil {
		r.options = options.DeepCopy()
	}
	return r.options
}

// deleteOptions returns the options of a DELETE; nil if admission has not run.
func (r *request) deleteOptions() *metav1.DeleteOptions {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.options
}

// keepAnswer keeps the response to a dry run of a plan, if the plan removes the object (R20).
func (r *request) keepAnswer(plan deletion.Plan, obj runtime.Object, strategy deletion.Strategy) error {
	var status *metav1.Status // nil if the object stays
	if _, removes := plan.(deletion.Remove); removes {
		var err error
		if status, err = deletion.Removed(obj, strategy.Resource); err != nil {
			return err
		}
		status.SetGroupVersionKind(metav1.Unversioned.WithKind("Status"))
		status.ResourceVersion = "" // nothing was removed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = status
	return nil
}

// dryRunAnswer returns the response of keepAnswer.
func (r *request) dryRunAnswer() *metav1.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer
}

// preconditionsOr returns the registry's preconditions of a removal, or the client's preconditions
// if the registry has lost them. The registry sets the resourceVersion to the version of the object
// that it has just written. If it had nothing to write, it sets the resourceVersion to "".
func (r *request) preconditionsOr(registry *storage.Preconditions) *storage.Preconditions {
	if r == nil || registry == nil || registry.ResourceVersion == nil || *registry.ResourceVersion != "" {
		return registry
	}
	options := r.deleteOptions()
	if options == nil {
		return registry
	}
	return preconditionsOf(options)
}

// observe keeps the version of the object from which an update is computed.
func (r *request) observe(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = m.GetResourceVersion()
	return nil
}

// unchanged returns the condition for removing an object that waits for nothing after an update
// (R18). Such an update is never written, so the object may only be removed in the state from which
// the update was computed. After any other write meanwhile, such as a finalizer, a longer grace
// period or another object with the name, the update must be computed again.
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

// recordRemoval keeps the uid and the resourceVersion of the removed object.
func (r *request) recordRemoval(removed runtime.Object) {
	m, err := meta.Accessor(removed)
	if r == nil || err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removedUID, r.removedVersion = m.GetUID(), m.GetResourceVersion()
}

// removal returns the values of recordRemoval.
func (r *request) removal() (types.UID, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.removedUID, r.removedVersion
}

func (r *request) canRetry() bool { return r != nil && r.tries > 0 }

// retry arranges for the request to be served again if there are tries left. The error ends the
// current try; if it was the last, the client sees the error as a conflict.
func (r *request) retry(key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discarded = r.tries > 0
	return storage.NewInvalidObjError(key, "the object was changed while it was being removed; try again")
}

func (r *request) isDiscarded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.discarded
}
