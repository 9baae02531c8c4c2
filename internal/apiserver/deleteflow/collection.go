package deleteflow

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/collect/auditreason"
)

// optionsLimit is the most bytes that are read from a body. DeleteOptions are smaller.
const optionsLimit = 1 << 20

// refusals are the errors of a DELETE of a collection, by object. Upstream's registry stops at the first object that is
// refused. So the registry gets the error that the object is not found, and goes on. The refusals are kept here, and
// form the response at the end, as for built-in kinds.
type refusals struct {
	resource schema.GroupResource
	// conditions are the preconditions for each object; nil if there are none.
	conditions *storage.Preconditions

	mu     sync.Mutex
	begun  sets.Set[string] // keys of the objects whose deletion the registry has begun; guarded by mu
	by     map[string]error // by key; guarded by mu
	listed bool             // the registry has listed the collection; guarded by mu
}

// serveCollection serves a DELETE of a collection.
func serveCollection(next http.Handler, codecs runtime.NegotiatedSerializer, w http.ResponseWriter, r *http.Request, info *genericrequest.RequestInfo) {
	refused := &refusals{
		resource:   schema.GroupResource{Group: info.APIGroup, Resource: info.Resource},
		conditions: conditionsOf(r), begun: sets.New[string](), by: map[string]error{},
	}
	next.ServeHTTP(&collectionWriter{ResponseWriter: w, header: w.Header().Clone(), refused: refused, fail: func(err error) {
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
	}}, withRequest(r, &request{deletes: true, reasons: auditreason.IsCascade(r), agent: agentOf(r), refused: refused}))
}

// refusalsFrom returns the refusals of the request; nil if the request is not for a collection.
func refusalsFrom(ctx context.Context) *refusals {
	if r := requestFrom(ctx); r != nil && !isPlanned(ctx) {
		return r.refused
	}
	return nil
}

// conditionsOf returns the preconditions in the body, which stays readable.
func conditionsOf(r *http.Request) *storage.Preconditions {
	options := optionsOf(r)
	if options == nil {
		return nil
	}
	return preconditionsOf(options)
}

// optionsOf returns the options in the body, which stays readable; nil if there are none. The handler refuses a body
// that cannot be decoded.
func optionsOf(r *http.Request) *metav1.DeleteOptions {
	if r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, optionsLimit))
	r.Body = readCloser{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil || len(body) == 0 {
		return nil
	}
	input, err := negotiation.NegotiateInputSerializer(r, false, internalversionscheme.Codecs)
	if err != nil {
		return nil
	}
	options, kind := &metav1.DeleteOptions{}, metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if _, _, err := internalversionscheme.Codecs.DecoderToVersion(input.Serializer, kind.GroupVersion()).Decode(body, &kind, options); err != nil {
		return nil
	}
	return options
}

// begin counts an object that the registry is about to delete. It checks the preconditions, because
// the registry would stop at the first object that does not meet them.
func (f *refusals) begin(ctx context.Context, key string, obj runtime.Object) error {
	f.mu.Lock()
	f.begun.Insert(key)
	f.mu.Unlock()
	return f.keep(ctx, key, f.conditions.Check(key, obj))
}

// keep keeps the refusal of one object, and returns the error that the registry gets instead.
// Errors that are not API errors are passed on, because the registry uses some internally, and so
// are all errors once the request is over. The key ends in the name of the object.
func (f *refusals) keep(ctx context.Context, key string, err error) error {
	if f == nil || err == nil || ctx.Err() != nil {
		return err
	}
	refusal := storeerr.InterpretDeleteError(err, f.resource, path.Base(key))
	if status := apierrors.APIStatus(nil); !errors.As(refusal, &status) {
		return err
	}
	if !apierrors.IsNotFound(refusal) {
		f.mu.Lock()
		f.by[key] = refusal
		f.mu.Unlock()
	}
	return apierrors.NewNotFound(f.resource, path.Base(key))
}

// err returns the error for the whole collection: the refusal of the first object in key order, with the number of all
// refusals. It is nil if no object was refused.
func (f *refusals) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(f.by)) {
		errs = append(errs, f.by[key])
	}
	if len(errs) == 0 {
		return nil
	}
	return registry.CollectionError(errs, f.begun.Len())
}

// collectionWriter replaces a successful response with the refusals.
type collectionWriter struct {
	http.ResponseWriter
	header  http.Header
	refused *refusals
	fail    func(error) // sends an error

	wroteHeader, discarded bool
}

// Header implements http.ResponseWriter.
func (w *collectionWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. When it is called, the registry has tried to delete every object of the
// collection.
func (w *collectionWriter) WriteHeader(status int) {
	if w.wroteHeader {
		return
	}
	w.wroteHeader = true
	if err := w.refused.err(); err != nil && status < http.StatusBadRequest {
		w.discarded = true
		w.fail(err)
		return
	}
	maps.Copy(w.ResponseWriter.Header(), w.header)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *collectionWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.discarded {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// ContinueOnRefusal returns an admission chain whose refusal of one object of a collection does
// not stop the deletion of the others.
func (f *Flow) ContinueOnRefusal(chain admission.Interface) admission.Interface {
	return continueOnRefusal{chain}
}

type continueOnRefusal struct{ admission.Interface }

// Admit implements admission.MutationInterface.
func (o continueOnRefusal) Admit(ctx context.Context, a admission.Attributes, objects admission.ObjectInterfaces) error {
	chain, ok := o.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	return refused(ctx, a, chain.Admit(ctx, a, objects))
}

// Validate implements admission.ValidationInterface.
func (o continueOnRefusal) Validate(ctx context.Context, a admission.Attributes, objects admission.ObjectInterfaces) error {
	chain, ok := o.Interface.(admission.ValidationInterface)
	if !ok {
		return nil
	}
	return refused(ctx, a, chain.Validate(ctx, a, objects))
}

func refused(ctx context.Context, a admission.Attributes, err error) error {
	m, ok := a.GetOldObject().(metav1.Object)
	if !ok || a.GetOperation() != admission.Delete {
		return err
	}
	return refusalsFrom(ctx).keep(ctx, m.GetNamespace()+"/"+m.GetName(), err)
}
