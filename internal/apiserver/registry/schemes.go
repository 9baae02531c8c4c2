package registry

import (
	"fmt"
	"reflect"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Schemes define how types are decoded, defaulted, encoded and named. They are not changed after
// NewSchemes.
type Schemes struct {
	// Hub holds every type twice, as v1 and as the internal version, which is the same Go
	// type: k8s.io/apiserver converts between the two, and there is nothing to convert.
	Hub *runtime.Scheme
	// External has only the names on the wire. OpenAPI definitions take their names from it: with names from Hub, every
	// definition would claim the version __internal.
	External *runtime.Scheme

	Codecs         serializer.CodecFactory
	ParameterCodec runtime.ParameterCodec
}

// NewSchemes builds the schemes of the groups.
func NewSchemes(groups []Group) Schemes {
	var resources []Resource
	for _, group := range groups {
		resources = append(resources, group.Resources...)
	}
	hub := externalScheme(groups, resources)
	hub.AddKnownTypes(schema.GroupVersion{Group: autoscalingv1.GroupName, Version: runtime.APIVersionInternal}, &autoscalingv1.Scale{})
	for _, group := range groups {
		addInternal(hub, group.GroupVersion)
		// The named versions come before all others.
		versions := append([]schema.GroupVersion{group.GroupVersion}, legacyGroupVersions(resources, group.GroupVersion.Group)...)
		utilruntime.Must(hub.SetVersionPriority(versions...))
	}
	addLegacyConversions(hub, resources)
	addPeerConversions(hub, resources)
	for _, resource := range resources {
		hub.AddTypeDefaultingFunc(resource.New(), func(obj any) { resource.Strategy.Default(obj.(runtime.Object)) })
		if labels := resource.FieldLabels(); len(labels) > 0 {
			utilruntime.Must(hub.AddFieldLabelConversionFunc(resource.GVK(), acceptLabels(labels)))
		}
	}
	return Schemes{
		Hub:            hub,
		External:       externalScheme(groups, resources),
		Codecs:         serializer.NewCodecFactory(hub),
		ParameterCodec: runtime.NewParameterCodec(hub),
	}
}

func externalScheme(groups []Group, resources []Resource) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, group := range groups {
		utilruntime.Must(group.AddToScheme(scheme))
	}
	addScale(scheme)
	addLegacyTypes(scheme, resources)
	addPeerTypes(scheme, resources)
	// Responses that belong to no group.
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

// addScale registers the type of /scale.
func addScale(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
	metav1.AddToGroupVersion(scheme, autoscalingv1.SchemeGroupVersion)
}

// acceptLabels returns a function that checks the label of a field selector.
func acceptLabels(labels []string) runtime.FieldLabelConversionFunc {
	accepted := append([]string{"metadata.name", "metadata.namespace"}, labels...)
	return func(label, value string) (string, string, error) {
		if !slices.Contains(accepted, label) {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return label, value, nil
	}
}
