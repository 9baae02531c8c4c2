package registry

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// scaleKind is the kind of /scale in all group versions.
const scaleKind = "Scale"

// addLegacyScaleConversions lets the hub convert the Scale of autoscaling/v1 to the Scale of a legacy version, and
// back. Each legacy version has its own type, with the same fields.
func addLegacyScaleConversions(hub *runtime.Scheme, l LegacyVersion) {
	internal := schema.GroupVersion{Group: l.GroupVersion.Group, Version: runtime.APIVersionInternal}
	hub.AddKnownTypeWithName(internal.WithKind(scaleKind), &autoscalingv1.Scale{})
	utilruntime.Must(hub.AddConversionFunc(l.Scale, &autoscalingv1.Scale{}, conversionFunc(func(from, to runtime.Object) error {
		return scaleToHub(from, to.(*autoscalingv1.Scale))
	})))
	utilruntime.Must(hub.AddConversionFunc(&autoscalingv1.Scale{}, l.Scale, conversionFunc(func(from, to runtime.Object) error {
		return scaleFromHub(from.(*autoscalingv1.Scale), to)
	})))
}

// scaleToHub converts a legacy Scale to autoscaling/v1.
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

// scaleFromHub converts a Scale of autoscaling/v1 to a legacy type. It also shows the selector as labels if the
// selector has nothing but labels.
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
