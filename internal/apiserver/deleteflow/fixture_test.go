package deleteflow

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
)

const (
	foreign = "example.com/hold"
	late    = "example.com/late"
)

// memory is a storage of one object. Before each write it lets the test act as another client.
type memory struct {
	storage.Interface // missing methods panic

	// before is called at the beginning of each write, without the lock.
	before func(write string)

	mu       sync.Mutex
	object   runtime.Object // nil: there is none; guarded by mu
	stale    runtime.Object // the object in a stale cache, if not nil; guarded by mu
	revision int            // guarded by mu
	writes   []string       // attempted and completed writes; guarded by mu
}

func (m *memory) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (m *memory) ReadinessCheck() error { return nil }

// put stores an object as another client would.
func (m *memory) put(obj runtime.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(obj)
}

func (m *memory) putLocked(obj runtime.Object) {
	m.revision++
	m.object = obj.DeepCopyObject()
	metaOf(m.object).SetResourceVersion(strconv.Itoa(m.revision))
}

// change changes the stored object as another client would.
func (m *memory) change(f func(metav1.Object)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	obj := m.object.DeepCopyObject()
	f(metaOf(obj))
	m.putLocked(obj)
}

func (m *memory) stored() metav1.Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.object == nil {
		return nil
	}
	return metaOf(m.object)
}

// log records an attempted write, and lets the test act before it.
func (m *memory) log(write string) {
	m.mu.Lock()
	m.writes = append(m.writes, write)
	m.mu.Unlock()
	if m.before != nil {
		m.before(write)
	}
}

func (m *memory) Get(_ context.Context, key string, _ storage.GetOptions, out runtime.Object) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.object == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	copyInto(out, m.object)
	return nil
}

// transact runs f on the object, like etcd's storage: first on the cached object and, if that fails
// or is stale, on the stored object.
func (m *memory) transact(key string, p *storage.Preconditions, f func(obj runtime.Object) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.object == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if m.stale != nil && p.Check(key, m.stale) == nil {
		_ = f(m.stale.DeepCopyObject())
	}
	if err := p.Check(key, m.object); err != nil {
		return err
	}
	return f(m.object.DeepCopyObject())
}

func (m *memory) Delete(ctx context.Context, key string, out runtime.Object, p *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions,
) error {
	m.log("remove")
	if err := m.transact(key, p, func(obj runtime.Object) error { return validate(ctx, obj) }); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision++
	copyInto(out, m.object)
	metaOf(out).SetResourceVersion(strconv.Itoa(m.revision))
	m.object = nil
	return nil
}

func (m *memory) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, _ bool, p *storage.Preconditions,
	tryUpdate storage.UpdateFunc, _ runtime.Object,
) error {
	m.log("update")
	var updated runtime.Object
	err := m.transact(key, p, func(obj runtime.Object) (err error) {
		revision, err := strconv.ParseUint(metaOf(obj).GetResourceVersion(), 10, 64)
		if err != nil {
			return err
		}
		updated, _, err = tryUpdate(obj, storage.ResponseMeta{ResourceVersion: revision})
		return err
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.object.DeepCopyObject()
	metaOf(updated).SetResourceVersion(metaOf(before).GetResourceVersion())
	if !reflect.DeepEqual(before, updated) {
		m.putLocked(updated)
	}
	copyInto(out, m.object)
	return nil
}

func copyInto(out, obj runtime.Object) {
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(obj.DeepCopyObject()).Elem())
}

func metaOf(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return m
}

// fixture is a registry of one kind with the delete flow and a storage.
type fixture struct {
	*memory
	t        *testing.T
	flow     *Flow
	kind     registry.Resource
	registry rest.Storage // ours
	tries    int          // how many times a request was served
	response []byte       // the body of the last response
}

func testNow() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// newFixture returns the registry of a resource with one stored object.
func newFixture(t *testing.T, obj runtime.Object) *fixture {
	t.Helper()
	w := &fixture{memory: &memory{}, t: t, flow: New(Config{Now: testNow, Collector: true, Resources: builtin.Resources()})}
	schemes := builtin.NewSchemes()
	for _, k := range builtin.Resources() {
		if reflect.TypeOf(k.New()) == reflect.TypeOf(obj) {
			w.kind = k
		}
	}
	storages, err := registry.NewStorages(w.kind, schemes.Hub, registry.Config{RESTOptions: restOptions{w, schemes}, Deleter: w.flow, Now: testNow})
	if err != nil {
		t.Fatal(err)
	}
	w.registry = storages[w.kind.Plural]
	m := metaOf(obj)
	m.SetName("a")
	m.SetUID("1st")
	m.SetCreationTimestamp(metav1.NewTime(testNow().Add(-time.Minute)))
	if w.kind.Namespaced {
		m.SetNamespace(metav1.NamespaceDefault)
	}
	w.put(obj)
	return w
}

// restOptions puts the guard around the memory.
type restOptions struct {
	fixture *fixture
	schemes registry.Schemes
}

func (o restOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{
		StorageConfig: &storagebackend.ConfigForResource{GroupResource: resource, Config: storagebackend.Config{
			Codec: o.schemes.Codecs.LegacyCodec(o.fixture.kind.GroupVersion),
		}},
		ResourcePrefix:          resource.Resource,
		EnableGarbageCollection: true,
		Decorator: func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
			storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers,
		) (storage.Interface, factory.DestroyFunc, error) {
			return o.fixture.flow.Guard(resource, nil, o.fixture.memory), func() {}, nil
		},
	}, nil
}

// upstream is the registry of custom resources, with the Delete of genericregistry.Store.
func (w *fixture) upstream() *upstreamREST {
	return &upstreamREST{w.registry.(*registry.REST)}
}

type upstreamREST struct{ *registry.REST }

func (r *upstreamREST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.Store.Delete(ctx, name, validate, options)
}

func (r *upstreamREST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) error {
	// Upstream first lists the objects, which memory cannot, and then deletes each object like
	// this.
	_, _, err := r.Store.Delete(ctx, "a", validate, options.DeepCopy())
	return err
}

// answer is a response to a client.
type answer struct {
	status  int
	removed bool
	object  metav1.Object // nil: the response is a Status
	err     error
}

// serve serves one request through the filter, with a handler like upstream's.
func (w *fixture) serve(verb, body string, handle func(ctx context.Context, body []byte) (runtime.Object, bool, error)) answer {
	w.t.Helper()
	var got answer
	handler := w.flow.WithRequest(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.tries++
		var content []byte
		if r.Body != nil {
			content = readAll(w.t, r)
		}
		obj, removed, err := handle(r.Context(), content)
		got = answer{removed: removed, err: err}
		if o, ok := obj.(metav1.Object); ok && err == nil {
			got.object = o
		}
		rw.Header().Set("Content-Type", runtime.ContentTypeJSON)
		rw.Header().Add("Tries", strconv.Itoa(w.tries))
		rw.WriteHeader(http.StatusOK)
		if err := json.NewEncoder(rw).Encode(obj); err != nil {
			w.t.Error(err)
		}
	}), scheme.Codecs)
	request := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, "/", strings.NewReader(body))
	ctx := genericrequest.WithRequestInfo(w.context(request.Context()), &genericrequest.RequestInfo{IsResourceRequest: true, Verb: verb})
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request.WithContext(ctx))
	got.status, w.response = recorder.Code, recorder.Body.Bytes()
	if header := recorder.Header().Values("Tries"); len(header) != 1 || header[0] != strconv.Itoa(w.tries) {
		w.t.Errorf("the client got the answers to tries %v of %d", header, w.tries)
	}
	if decoder := json.NewDecoder(recorder.Body); decoder.Decode(new(any)) != nil || decoder.More() {
		w.t.Errorf("the client did not get exactly one answer: %s", recorder.Body)
	}
	return got
}

func (w *fixture) context(ctx context.Context) context.Context {
	namespace := metav1.NamespaceNone
	if w.kind.Namespaced {
		namespace = metav1.NamespaceDefault
	}
	return genericrequest.WithNamespace(ctx, namespace)
}

// deleteWith performs a DELETE by the given registry.
func (w *fixture) deleteWith(r rest.GracefulDeleter, options metav1.DeleteOptions) answer {
	w.t.Helper()
	body, err := json.Marshal(options)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.serve("delete", string(body), func(ctx context.Context, body []byte) (runtime.Object, bool, error) {
		options := &metav1.DeleteOptions{}
		if err := json.Unmarshal(body, options); err != nil {
			return nil, false, err
		}
		return r.Delete(ctx, "a", w.admit("a", options), options)
	})
}

// admit is the admission of a DELETE: only our plug-in, which refuses nothing.
func (w *fixture) admit(name string, options *metav1.DeleteOptions) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		return w.flow.OptionsPlugin().Admit(ctx, admission.NewAttributesRecord(nil, obj, w.kind.GVK(), metav1.NamespaceDefault, name,
			w.kind.GroupVersion.WithResource(w.kind.Plural), "", admission.Delete, options, dryrun.IsDryRun(options.DryRun), nil), nil)
	}
}

// update changes the object like a patch without resourceVersion.
func (w *fixture) update(f func(metav1.Object)) answer {
	w.t.Helper()
	return w.serve("patch", "{}", func(ctx context.Context, _ []byte) (runtime.Object, bool, error) {
		info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, existing runtime.Object) (runtime.Object, error) {
			obj := existing.DeepCopyObject()
			f(metaOf(obj))
			return obj, nil
		})
		obj, created, err := w.registry.(rest.Updater).Update(ctx, "a", info, nil, nil, false, &metav1.UpdateOptions{})
		return obj, created, err
	})
}

// recreate replaces the stored object with another one of the same name.
func (w *fixture) recreate() {
	w.change(func(m metav1.Object) {
		m.SetUID("2nd")
		m.SetDeletionTimestamp(nil)
		m.SetDeletionGracePeriodSeconds(nil)
		m.SetFinalizers(nil)
	})
}

// once runs f before the nth write of its kind, and not again.
func once(write string, n int, f func()) func(string) {
	return func(w string) {
		if w == write {
			if n--; n == 0 {
				f()
			}
		}
	}
}

// marked marks an object as being deleted.
func marked(m metav1.Object, finalizers ...string) {
	m.SetFinalizers(finalizers)
	m.SetDeletionTimestamp(new(metav1.NewTime(testNow().Add(-time.Second))))
	m.SetDeletionGracePeriodSeconds(new(int64(0)))
}

func configMap(finalizers ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Finalizers: finalizers}}
}

func withFinalizers(finalizers ...string) func(metav1.Object) {
	return func(m metav1.Object) { m.SetFinalizers(finalizers) }
}

func isConflict(err error) bool {
	return apierrors.IsConflict(err)
}

var errRefused = errors.New("refused")

func uidOf(m metav1.Object) types.UID {
	if m == nil {
		return ""
	}
	return m.GetUID()
}
