package registry

import (
	"fmt"
	"reflect"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Schemes is what the server has to know about types: how they are decoded,
// defaulted, encoded and named. It is not changed after NewSchemes.
type Schemes struct {
	// Hub holds every type twice, as v1 and as the internal version, which is the
	// same Go type: the library converts between the two, and there is nothing to convert.
	Hub *runtime.Scheme
	// External holds the names on the wire only. OpenAPI is to be named by it: named by Hub,
	// every definition would claim to be of version __internal.
	External *runtime.Scheme

	Codecs         serializer.CodecFactory
	ParameterCodec runtime.ParameterCodec
}

// typeGroup is one API group of k8s.io/api.
type typeGroup struct {
	version schema.GroupVersion
	add     func(*runtime.Scheme) error
}

// typeGroups are the groups whose types the schemes know. Of autoscaling/v1 it is
// Scale only: what /scale endpoints speak. authentication and authorization have no
// rows: nothing of theirs is stored (package reviews).
func typeGroups() []typeGroup {
	return []typeGroup{
		{corev1.SchemeGroupVersion, corev1.AddToScheme},
		{appsv1.SchemeGroupVersion, appsv1.AddToScheme},
		{batchv1.SchemeGroupVersion, batchv1.AddToScheme},
		{coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme},
		{rbacv1.SchemeGroupVersion, rbacv1.AddToScheme},
		{networkingv1.SchemeGroupVersion, networkingv1.AddToScheme},
		{discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme},
		{policyv1.SchemeGroupVersion, policyv1.AddToScheme},
		{storagev1.SchemeGroupVersion, storagev1.AddToScheme},
		{schedulingv1.SchemeGroupVersion, schedulingv1.AddToScheme},
		{admissionregistrationv1.SchemeGroupVersion, admissionregistrationv1.AddToScheme},
		{authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme},
		{authorizationv1.SchemeGroupVersion, authorizationv1.AddToScheme},
		{flowcontrolv1.SchemeGroupVersion, flowcontrolv1.AddToScheme},
		{autoscalingv1.SchemeGroupVersion, addScale},
		{autoscalingv2.SchemeGroupVersion, autoscalingv2.AddToScheme},
	}
}

// NewSchemes builds the schemes from the table.
func NewSchemes() Schemes {
	hub, rows := externalScheme(), Table()
	for _, group := range typeGroups() {
		addInternal(hub, group.version)
		must(hub.SetVersionPriority(group.version)) // before those that are not named
	}
	must(hub.SetVersionPriority(appsv1.SchemeGroupVersion, appsv1beta2.SchemeGroupVersion, appsv1beta1.SchemeGroupVersion))
	addLegacyConversions(hub, rows)
	for _, k := range rows {
		hub.AddTypeDefaultingFunc(k.New(), func(obj any) { k.behaviour.defaults(obj.(runtime.Object)) })
		if labels := k.FieldLabels(); len(labels) > 0 {
			must(hub.AddFieldLabelConversionFunc(k.GVK(), acceptLabels(labels)))
		}
	}
	return Schemes{
		Hub:            hub,
		External:       externalScheme(),
		Codecs:         serializer.NewCodecFactory(hub),
		ParameterCodec: runtime.NewParameterCodec(hub),
	}
}

func externalScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, group := range typeGroups() {
		must(group.add(scheme))
	}
	addLegacy(scheme)
	// Answers that belong to no group.
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme
}

// addInternal registers the types of a group as its internal version too. v1 was
// registered first, so that the type's first name, which errors show, is v1.
func addInternal(scheme *runtime.Scheme, version schema.GroupVersion) {
	internal := schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal}
	shared := reflect.TypeFor[metav1.ListOptions]().PkgPath() // ListOptions, WatchEvent and so on are of every group
	for kind, t := range scheme.KnownTypes(version) {
		if t.PkgPath() != shared {
			scheme.AddKnownTypeWithName(internal.WithKind(kind), reflect.New(t).Interface().(runtime.Object))
		}
	}
}

// acceptLabels checks the labels of a field selector.
func acceptLabels(labels []string) runtime.FieldLabelConversionFunc {
	accepted := append([]string{"metadata.name", "metadata.namespace"}, labels...)
	return func(label, value string) (string, string, error) {
		if !slices.Contains(accepted, label) {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return label, value, nil
	}
}

// must stops the program: what fails here fails always, whatever the input, and
// the first test that builds a scheme finds it.
func must(err error) { utilruntime.Must(err) }
