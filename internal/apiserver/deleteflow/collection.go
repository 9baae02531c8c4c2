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
)

// optionsLimit is how much of a body is looked at, in bytes: more than options have.
const optionsLimit = 1 << 20

// refusals are what a DELETE of a collection was refused. The library's registry would
// stop at the first object that is refused. So it is told of each that it is gone
// already, which stops nothing; the refusal is kept here, and when all are done, the
// answer is what was refused, as it is for built-in kinds.
type refusals struct {
	resource schema.GroupResource
	// conditions are the preconditions that each object has to meet; nil if there are none.
	conditions *storage.Preconditions

	mu    sync.Mutex
	asked sets.Set[string] // keys of the objects that the registry has begun with; guarded by mu
	by    map[string]error // the refused, by their keys; guarded by mu
}

// serveCollection serves a DELETE of a collection.
func serveCollection(next http.Handler, codecs runtime.NegotiatedSerializer, w http.ResponseWriter, r *http.Request, info *genericrequest.RequestInfo) {
	refused := &refusals{
		resource:   schema.GroupResource{Group: info.APIGroup, Resource: info.Resource},
		conditions: conditionsOf(r), asked: sets.New[string](), by: map[string]error{},
	}
	next.ServeHTTP(&verdictWriter{ResponseWriter: w, header: w.Header().Clone(), refused: refused, fail: func(err error) {
		responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, r)
	}}, withRequest(r, &request{deletes: true, refused: refused}))
}

// refusalsFrom are those of the request; nil if it is not about a collection.
func refusalsFrom(ctx context.Context) *refusals {
	if r := requestFrom(ctx); r != nil && !isPlanned(ctx) {
		return r.refused
	}
	return nil
}

// conditionsOf reads the preconditions out of the body, which stays readable. A body
// that cannot be decoded is for the handler to complain about.
func conditionsOf(r *http.Request) *storage.Preconditions {
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
	return preconditionsOf(options)
}

// begin counts an object that the registry is about to delete. It checks the
// preconditions, as the registry would stop where they do not hold.
func (f *refusals) begin(ctx context.Context, key string, obj runtime.Object) error {
	f.mu.Lock()
	f.asked.Insert(key)
	f.mu.Unlock()
	return f.keep(ctx, key, f.conditions.Check(key, obj))
}

// keep keeps what one object is refused for, and returns what the registry is told in
// its place. Errors by which the registry talks to itself pass, and so do all when the
// request is over. The key ends in the name of the object.
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

// verdict is the error for the whole collection: that of the first object in order of
// their keys, with the number of all. Nil if none was refused.
func (f *refusals) verdict() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(f.by)) {
		errs = append(errs, f.by[key])
	}
	if len(errs) == 0 {
		return nil
	}
	return registry.CollectionError(errs, f.asked.Len())
}

// verdictWriter puts the refusals in the place of an answer that all went well.
type verdictWriter struct {
	http.ResponseWriter
	header  http.Header
	refused *refusals
	fail    func(error) // answers with an error

	begun, void bool
}

// Header implements http.ResponseWriter.
func (v *verdictWriter) Header() http.Header { return v.header }

// WriteHeader implements http.ResponseWriter. The handler answers when all is done.
func (v *verdictWriter) WriteHeader(status int) {
	if v.begun {
		return
	}
	v.begun = true
	if err := v.refused.verdict(); err != nil && status < http.StatusBadRequest {
		v.void = true
		v.fail(err)
		return
	}
	maps.Copy(v.ResponseWriter.Header(), v.header)
	v.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (v *verdictWriter) Write(p []byte) (int, error) {
	v.WriteHeader(http.StatusOK)
	if v.void {
		return len(p), nil
	}
	return v.ResponseWriter.Write(p)
}

// Admission lets what admission refuses of a collection stop none of the others.
func (f *Flow) Admission(chain admission.Interface) admission.Interface { return oneByOne{chain} }

type oneByOne struct{ admission.Interface }

// Admit implements admission.MutationInterface.
func (o oneByOne) Admit(ctx context.Context, a admission.Attributes, objects admission.ObjectInterfaces) error {
	chain, ok := o.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	return refused(ctx, a, chain.Admit(ctx, a, objects))
}

// Validate implements admission.ValidationInterface.
func (o oneByOne) Validate(ctx context.Context, a admission.Attributes, objects admission.ObjectInterfaces) error {
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
