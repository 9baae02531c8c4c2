package upstream

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/variation"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
)

// admitter is a plug-in that changes objects, and checks them.
type admitter interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// plugins returns upstream's admission of pods by the classes that they name, in upstream's order: our registries do the
// same. There are the priority classes of the system, and no other class.
func plugins(t *testing.T) admitter {
	t.Helper()
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: "http://nowhere", QPS: -1, Transport: nothingFound{}})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	classes := factory.Scheduling().V1().PriorityClasses().Informer().GetIndexer()
	for _, class := range builtin.SystemPriorityClasses() {
		class.PreemptionPolicy = new(corev1.PreemptLowerPriority)
		if err := classes.Add(class); err != nil {
			t.Fatal(err)
		}
	}
	all := []admission.Interface{priority.NewPlugin(), defaulttolerationseconds.NewDefaultTolerationSeconds(), runtimeclass.NewRuntimeClass()}
	for _, p := range all {
		initializer.New(client, nil, factory, nil, utilfeature.DefaultFeatureGate, nil, t.Context().Done(), nil).Initialize(p)
	}
	return admission.NewChainHandler(all...)
}

// createOthers stores the objects that others refer to: the priority classes of the system, and the namespace.
func (s *side) createOthers(t *testing.T) {
	t.Helper()
	create := func(gvk schema.GroupVersionKind, plural string, obj runtime.Object) {
		k := &variation.Kind{GVK: gvk, Plural: plural}
		if a := s.send(t.Context(), request{kind: k, verb: "create", body: &body{obj: obj}}); a.err != nil {
			t.Fatalf("%s: create: %v", s.name, a.err)
		}
	}
	for _, class := range builtin.SystemPriorityClasses() {
		create(schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), "priorityclasses", class)
	}
	create(corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}

// nothingFound answers each request with 404.
type nothingFound struct{}

// RoundTrip implements http.RoundTripper.
func (nothingFound) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)),
	}, nil
}

// attributes returns a request for admission. options are those of a create or an update.
func (r request) attributes(ctx context.Context, operation admission.Operation, obj, old, options runtime.Object) admission.Attributes {
	user, _ := genericrequest.UserFrom(ctx)
	name := r.kind.Name()
	if operation == admission.Create && r.subresource == "" {
		name = obj.(metav1.Object).GetName()
	}
	return admission.NewAttributesRecord(obj, old, r.kind.GVK, r.kind.Namespace, name,
		r.kind.GVK.GroupVersion().WithResource(r.kind.Plural), r.subresource, operation, options, r.dryRun, user)
}

// admitNew admits an object that is to be created, and returns its later validation by plug-ins.
func (s *side) admitNew(ctx context.Context, r request, obj runtime.Object, options *metav1.CreateOptions) (rest.ValidateObjectFunc, error) {
	if s.plugins == nil {
		return rest.ValidateAllObjectFunc, nil
	}
	attributes := r.attributes(ctx, admission.Create, obj, nil, options)
	return rest.AdmissionToValidateObjectFunc(s.plugins, attributes, nil), s.plugins.Admit(ctx, attributes, nil)
}

// admitChange returns the admission of an object that is to be updated, and its later validation by plug-ins.
func (s *side) admitChange(ctx context.Context, r request, obj runtime.Object, options *metav1.UpdateOptions) (rest.UpdatedObjectInfo, rest.ValidateObjectUpdateFunc) {
	if s.plugins == nil {
		return rest.DefaultUpdatedObjectInfo(obj), rest.ValidateAllObjectUpdateFunc
	}
	info := rest.DefaultUpdatedObjectInfo(obj, func(ctx context.Context, changed, old runtime.Object) (runtime.Object, error) {
		return changed, s.plugins.Admit(ctx, r.attributes(ctx, admission.Update, changed, old, options), nil)
	})
	return info, rest.AdmissionToValidateObjectUpdateFunc(s.plugins, r.attributes(ctx, admission.Update, nil, nil, options), nil)
}
