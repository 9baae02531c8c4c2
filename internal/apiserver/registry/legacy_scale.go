package registry

import (
	"fmt"

	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// scaleKind is the kind of /scale in all group versions.
const scaleKind = "Scale"

// legacyScales are what /scale is in the legacy group versions: each had a type of its
// own, all alike, before there was one for all kinds.
func legacyScales() map[schema.GroupVersion]runtime.Object {
	return map[schema.GroupVersion]runtime.Object{
		appsv1beta2.SchemeGroupVersion:       &appsv1beta2.Scale{},
		appsv1beta1.SchemeGroupVersion:       &appsv1beta1.Scale{},
		extensionsv1beta1.SchemeGroupVersion: &extensionsv1beta1.Scale{},
	}
}

// addLegacyScaleConversions lets the hub make the type that /scale has in v1 from those
// of the legacy versions, and back.
func addLegacyScaleConversions(hub *runtime.Scheme) {
	for version, obj := range legacyScales() {
		internal := schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal}
		hub.AddKnownTypeWithName(internal.WithKind(scaleKind), &autoscalingv1.Scale{})
		must(hub.AddConversionFunc(obj, &autoscalingv1.Scale{}, conversionTo(func(from, to runtime.Object) error {
			return scaleToHub(from, to.(*autoscalingv1.Scale))
		})))
		must(hub.AddConversionFunc(&autoscalingv1.Scale{}, obj, conversionTo(func(from, to runtime.Object) error {
			return scaleFromHub(from.(*autoscalingv1.Scale), to)
		})))
	}
}

// scaleToHub makes the type of v1 from a legacy one.
func scaleToHub(legacy runtime.Object, hub *autoscalingv1.Scale) error {
	var from extensionsv1beta1.Scale
	if err := transcribe(legacy, &from); err != nil {
		return err
	}
	hub.ObjectMeta, hub.Spec.Replicas, hub.Status.Replicas = from.ObjectMeta, from.Spec.Replicas, from.Status.Replicas
	hub.Status.Selector = from.Status.TargetSelector
	if hub.Status.Selector == "" && len(from.Status.Selector) > 0 {
		hub.Status.Selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: from.Status.Selector})
	}
	return nil
}

// scaleFromHub makes a legacy type from that of v1. The selector is shown as labels, too,
// if it is no more than that.
func scaleFromHub(hub *autoscalingv1.Scale, legacy runtime.Object) error {
	from := extensionsv1beta1.Scale{
		ObjectMeta: hub.ObjectMeta,
		Spec:       extensionsv1beta1.ScaleSpec{Replicas: hub.Spec.Replicas},
		Status:     extensionsv1beta1.ScaleStatus{Replicas: hub.Status.Replicas, TargetSelector: hub.Status.Selector},
	}
	if hub.Status.Selector != "" {
		selector, err := metav1.ParseToLabelSelector(hub.Status.Selector)
		if err != nil {
			return fmt.Errorf("parse the selector of %s: %w", hub.Name, err)
		}
		if len(selector.MatchExpressions) == 0 {
			from.Status.Selector = selector.MatchLabels
		}
	}
	return transcribe(&from, legacy)
}
