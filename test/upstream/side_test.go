package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/difference"
	"github.com/coppice-dev/coppice/internal/testing/memorystore"
	"github.com/coppice-dev/coppice/internal/testing/variation"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/warning"
)

// side is the registries of one side, called as the handlers of k8s.io/apiserver call them.
type side struct {
	name     string
	store    *memorystore.Store
	versions map[schema.GroupVersion]servedVersion
	plugins  admitter // nil: the registries do what these plug-ins do
}

// servedVersion is a group version, with its endpoints by path: pods, pods/status.
type servedVersion struct {
	group     *genericapiserver.APIGroupInfo
	hub       schema.GroupVersion // the version that the registries work with
	endpoints map[string]rest.Storage
}

// deserializer decodes without defaults, and without conversion.
var deserializer = serializer.NewCodecFactory(builtin.NewSchemes().External).UniversalDeserializer()

func newSide(name string, store *memorystore.Store) *side {
	return &side{name: name, store: store, versions: map[schema.GroupVersion]servedVersion{}}
}

func (s *side) add(group *genericapiserver.APIGroupInfo) {
	name := group.PrioritizedVersions[0].Group
	hub := schema.GroupVersion{Group: name, Version: runtime.APIVersionInternal}
	for version, endpoints := range group.VersionedResourcesStorageMap {
		s.versions[schema.GroupVersion{Group: name, Version: version}] = servedVersion{group, hub, endpoints}
	}
}

// discover completes a kind as discovery would: its name in paths, its scope, and the subresources that hold a whole
// object and can be written. It reports whether the kind is served.
func (s *side) discover(k *variation.Kind, namespace string) bool {
	version, ok := s.versions[k.GVK.GroupVersion()]
	if !ok {
		return false
	}
	var writable []string
	for path, endpoint := range version.endpoints {
		if !version.isOf(k.GVK.Kind, endpoint) {
			continue
		}
		plural, subresource, isOne := strings.Cut(path, "/")
		if !isOne {
			k.Plural = plural
			if endpoint.(rest.Scoper).NamespaceScoped() {
				k.Namespace = namespace
			}
		} else if _, ok := endpoint.(rest.Updater); ok {
			writable = append(writable, "/"+subresource)
		}
	}
	if k.Plural == "" {
		return false
	}
	slices.Sort(writable)
	if k.Subresources != nil {
		writable = slices.DeleteFunc(writable, func(name string) bool { return !slices.Contains(k.Subresources, name) })
	}
	k.Subresources, k.HasStatus = writable, slices.Contains(writable, "/status")
	return true
}

// isOf reports whether an endpoint takes and returns objects of a kind.
func (v servedVersion) isOf(kind string, endpoint rest.Storage) bool {
	kinds, _, err := v.group.Scheme.ObjectKinds(endpoint.New())
	return err == nil && slices.ContainsFunc(kinds, func(gvk schema.GroupVersionKind) bool { return gvk.Kind == kind })
}

// request is one request to an endpoint.
type request struct {
	kind        *variation.Kind
	subresource string
	verb        string // create, update or get
	body        *body
	dryRun      bool
}

// body is an object as a client sends it.
type body struct {
	obj runtime.Object // in its version, without defaults
	err error
}

// decode returns a body as both sides decode it: the types of versions are those of k8s.io/api, on both.
func decode(content map[string]any) *body {
	data, err := json.Marshal(content)
	if err != nil {
		return &body{err: err}
	}
	obj, _, err := deserializer.Decode(data, nil, nil)
	return &body{obj, err}
}

// answer is the answer to a request.
type answer struct {
	object   runtime.Object // in the version of the request; nil if it was refused
	err      error
	warnings recorder
}

// recorder records warnings.
type recorder struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

// AddWarning implements warning.Recorder.
func (r *recorder) AddWarning(_, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = append(r.text, text)
}

// send makes a request. A panic of a registry is an error of the answer.
func (s *side) send(ctx context.Context, r request) (a *answer) {
	a = &answer{}
	defer func() {
		if cause := recover(); cause != nil {
			a.object, a.err = nil, fmt.Errorf("panic: %v", cause)
		}
	}()
	version := s.versions[r.kind.GVK.GroupVersion()]
	path := r.kind.Plural
	if r.subresource != "" {
		path += "/" + r.subresource
	}
	obj, err := s.carry(r.context(ctx, &a.warnings), r, version, version.endpoints[path])
	if err != nil {
		a.err = err
		return a
	}
	a.object, a.err = version.group.Scheme.ConvertToVersion(obj, r.kind.GVK.GroupVersion())
	return a
}

// context returns the context of a request, as the filters of k8s.io/apiserver make it.
func (r request) context(ctx context.Context, warnings warning.Recorder) context.Context {
	ctx = genericrequest.WithNamespace(ctx, r.kind.Namespace)
	ctx = genericrequest.WithUser(ctx, &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})
	ctx = warning.WithWarningRecorder(ctx, warnings)
	info := &genericrequest.RequestInfo{
		IsResourceRequest: true, Verb: r.verb, APIGroup: r.kind.GVK.Group, APIVersion: r.kind.GVK.Version,
		Namespace: r.kind.Namespace, Resource: r.kind.Plural, Subresource: r.subresource,
	}
	if r.verb != "create" || r.subresource != "" {
		info.Name = r.kind.Name()
	}
	return genericrequest.WithRequestInfo(ctx, info)
}

func (s *side) carry(ctx context.Context, r request, version servedVersion, endpoint rest.Storage) (runtime.Object, error) {
	name := r.kind.Name()
	if r.verb == "get" {
		return endpoint.(rest.Getter).Get(ctx, name, &metav1.GetOptions{})
	}
	if r.body.err != nil {
		return nil, apierrors.NewBadRequest(r.body.err.Error())
	}
	obj, err := version.complete(r.body.obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	meta := obj.(metav1.Object)
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(r.kind.Namespace, meta); err != nil {
		return nil, err
	}
	var dryRun []string
	if r.dryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	switch r.verb {
	case "create":
		options := &metav1.CreateOptions{DryRun: dryRun}
		named, ok := endpoint.(rest.NamedCreater)
		if ok = ok && r.subresource != ""; !ok {
			rest.WipeObjectMetaSystemFields(meta)
		}
		validate, err := s.admitNew(ctx, r, obj, options)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return named.Create(ctx, name, obj, validate, options)
		}
		return endpoint.(rest.Creater).Create(ctx, obj, validate, options)
	case "update":
		if meta.GetName() != name {
			return nil, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
		}
		options := &metav1.UpdateOptions{DryRun: dryRun}
		info, validate := s.admitChange(ctx, r, obj, options)
		obj, _, err := endpoint.(rest.Updater).Update(ctx, name, info, rest.ValidateAllObjectFunc, validate, false, options)
		return obj, err
	}
	return nil, fmt.Errorf("unknown verb %q", r.verb)
}

// complete returns an object with its defaults, in the version of the registries, as a decoder does.
func (v servedVersion) complete(obj runtime.Object) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	v.group.Scheme.Default(obj)
	return v.group.Scheme.ConvertToVersion(obj, v.hub)
}

func (a *answer) verdict() difference.Verdict {
	if a.err != nil {
		return difference.Refused
	}
	return difference.Accepted
}

// outcome returns an answer in the form that is compared.
func (a *answer) outcome(success int) (difference.Outcome, error) {
	if a.err == nil {
		object, err := content(a.object)
		return difference.OutcomeOf(success, a.warnings.text, &unstructured.Unstructured{Object: object}), err
	}
	var status apierrors.APIStatus
	if !errors.As(a.err, &status) {
		return difference.Outcome{Code: http.StatusInternalServerError, Message: a.err.Error(), Warnings: a.warnings.text}, nil
	}
	reported := status.Status()
	reported.Kind = "Status"
	object, err := content(&reported)
	return difference.OutcomeOf(int(reported.Code), a.warnings.text, &unstructured.Unstructured{Object: object}), err
}

// content returns an object as JSON.
func content(obj runtime.Object) (map[string]any, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	return object, utiljson.Unmarshal(data, &object)
}

// equalAnswers reports whether two answers are the same but for the values that servers choose for each object. If it
// says no, a closer look may still find no difference.
func equalAnswers(a, b *answer) bool {
	if !slices.Equal(a.warnings.text, b.warnings.text) {
		return false
	}
	if a.err != nil || b.err != nil {
		return equalRefusals(a.err, b.err)
	}
	if reflect.TypeOf(a.object) != reflect.TypeOf(b.object) {
		return false
	}
	from, to := a.object.(metav1.Object), b.object.(metav1.Object)
	uid, created, version := to.GetUID(), to.GetCreationTimestamp(), to.GetResourceVersion()
	defer func() {
		to.SetUID(uid)
		to.SetCreationTimestamp(created)
		to.SetResourceVersion(version)
	}()
	to.SetUID(from.GetUID())
	to.SetCreationTimestamp(from.GetCreationTimestamp())
	to.SetResourceVersion(from.GetResourceVersion())
	return reflect.DeepEqual(a.object, b.object)
}

// equalRefusals reports whether two errors refuse an object for the same causes.
func equalRefusals(a, b error) bool {
	var first, second apierrors.APIStatus
	if !errors.As(a, &first) || !errors.As(b, &second) {
		return false
	}
	x, y := first.Status(), second.Status()
	if x.Code != http.StatusUnprocessableEntity || x.Code != y.Code {
		return x.Code == y.Code && x.Reason == y.Reason && x.Message == y.Message
	}
	return slices.Equal(sortedCauses(x), sortedCauses(y))
}

func sortedCauses(s metav1.Status) []metav1.StatusCause {
	causes := slices.Clone(s.Details.Causes)
	slices.SortFunc(causes, func(a, b metav1.StatusCause) int {
		return cmp.Or(strings.Compare(string(a.Type), string(b.Type)), strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(causes)
}

// handover is a codec that hands an object over instead of encoding it. Dry runs copy their results by the codec of the
// storage. One goroutine uses it.
type handover struct {
	obj    runtime.Object
	reread func(runtime.Object) runtime.Object
}

// Encode implements runtime.Codec.
func (h *handover) Encode(obj runtime.Object, _ io.Writer) error {
	h.obj = obj
	return nil
}

// Decode implements runtime.Codec.
func (h *handover) Decode(_ []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(h.reread(h.obj)).Elem())
	return into, nil, nil
}

// Identifier implements runtime.Codec.
func (h *handover) Identifier() runtime.Identifier { return "handover" }

// newStore returns an empty storage for the types of schemes.
func newStore(schemes ...*runtime.Scheme) *memorystore.Store {
	store := memorystore.New()
	store.Reread = func(obj runtime.Object) runtime.Object {
		for _, scheme := range schemes {
			if kinds, _, err := scheme.ObjectKinds(obj); err == nil {
				return reread(scheme, obj, kinds[0].Group)
			}
		}
		panic(fmt.Sprintf("no scheme has the type %T", obj))
	}
	store.Codec = func(schema.GroupResource) runtime.Codec { return &handover{reread: store.Reread} }
	return store
}

// reread returns an object as a server reads it that has encoded and stored it: with the defaults of the stored version.
func reread(scheme *runtime.Scheme, obj runtime.Object, group string) runtime.Object {
	stored, err := scheme.ConvertToVersion(obj.DeepCopyObject(), scheme.PrioritizedVersionsForGroup(group)[0])
	if err != nil {
		panic(err)
	}
	scheme.Default(stored)
	hub, err := scheme.ConvertToVersion(stored, schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal})
	if err != nil {
		panic(err)
	}
	hub.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return hub
}
