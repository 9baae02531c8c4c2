package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// The annotations in which an object of autoscaling/v1 keeps the fields that only v2 has.
const (
	annotationPrefix     = "autoscaling.alpha.kubernetes.io/"
	metricsAnnotation    = annotationPrefix + "metrics"
	measuredAnnotation   = annotationPrefix + "current-metrics"
	conditionsAnnotation = annotationPrefix + "conditions"
	behaviorAnnotation   = annotationPrefix + "behavior"
	downToleranceRetired = annotationPrefix + "scale-down-tolerance"
	upToleranceRetired   = annotationPrefix + "scale-up-tolerance"
)

// v1 is the version autoscaling/v1, which has one metric, the utilization of the CPU. Annotations hold the other
// metrics and all other fields that only v2 has.
func v1() registry.PeerVersion {
	v := registry.Peer[autoscalingv1.HorizontalPodAutoscaler, autoscalingv1.HorizontalPodAutoscalerList, autoscalingv2.HorizontalPodAutoscaler](
		autoscalingv1.SchemeGroupVersion, nil, autoscalerFromV1, autoscalerToV1)
	// A behavior in an annotation gets its defaults when the stored object is read: v1 has no such field.
	v.Default = func(obj runtime.Object) { defaultScale(obj.(*autoscalingv2.HorizontalPodAutoscaler)) }
	return v
}

// autoscalerFromV1 sets no defaults. It ignores annotations that it cannot read.
func autoscalerFromV1(from *autoscalingv1.HorizontalPodAutoscaler, to *autoscalingv2.HorizontalPodAutoscaler) error {
	*to = autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: from.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(from.Spec.ScaleTargetRef),
			MinReplicas:    from.Spec.MinReplicas,
			MaxReplicas:    from.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: from.Status.ObservedGeneration,
			LastScaleTime:      from.Status.LastScaleTime,
			CurrentReplicas:    from.Status.CurrentReplicas,
			DesiredReplicas:    from.Status.DesiredReplicas,
		},
	}
	to.Annotations = withoutKept(from.Annotations)
	if metrics, ok := kept[[]autoscalingv1.MetricSpec](from.Annotations, metricsAnnotation); ok {
		to.Spec.Metrics = each(metrics, metricFromV1)
	}
	if percent := from.Spec.TargetCPUUtilizationPercentage; percent != nil {
		to.Spec.Metrics = append(to.Spec.Metrics, cpuUtilization(*percent))
	}
	if behavior, ok := kept[keptBehavior](from.Annotations, behaviorAnnotation); ok && behavior != (keptBehavior{}) {
		to.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: behavior.ScaleUp.rules(), ScaleDown: behavior.ScaleDown.rules()}
	}
	if percent := from.Status.CurrentCPUUtilizationPercentage; percent != nil {
		to.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: percent},
			},
		}}
	}
	if measured, ok := kept[[]autoscalingv1.MetricStatus](from.Annotations, measuredAnnotation); ok {
		to.Status.CurrentMetrics = each(measured, measuredFromV1)
	}
	if conditions, ok := kept[[]autoscalingv1.HorizontalPodAutoscalerCondition](from.Annotations, conditionsAnnotation); ok {
		to.Status.Conditions = each(conditions, conditionFromV1)
	}
	return nil
}

func autoscalerToV1(from *autoscalingv2.HorizontalPodAutoscaler, to *autoscalingv1.HorizontalPodAutoscaler) error {
	*to = autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: from.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(from.Spec.ScaleTargetRef),
			MinReplicas:    from.Spec.MinReplicas,
			MaxReplicas:    from.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: from.Status.ObservedGeneration,
			LastScaleTime:      from.Status.LastScaleTime,
			CurrentReplicas:    from.Status.CurrentReplicas,
			DesiredReplicas:    from.Status.DesiredReplicas,
		},
	}
	var others []autoscalingv2.MetricSpec
	for _, m := range from.Spec.Metrics {
		switch percent := targetUtilization(&m); {
		case percent == nil:
			others = append(others, m)
		case to.Spec.TargetCPUUtilizationPercentage == nil:
			to.Spec.TargetCPUUtilizationPercentage = percent
		}
	}
	for _, m := range from.Status.CurrentMetrics {
		if m.Resource != nil && m.Resource.Name == corev1.ResourceCPU && m.Resource.Current.AverageUtilization != nil {
			to.Status.CurrentCPUUtilizationPercentage = m.Resource.Current.AverageUtilization
		}
	}
	annotations := keeping{annotations: withoutKept(from.Annotations)}
	if len(others) > 0 {
		annotations.keep(metricsAnnotation, each(others, metricToV1))
	}
	// All measured values: v1 has no field for the raw value that belongs to the utilization.
	if measured := from.Status.CurrentMetrics; len(measured) > 0 {
		annotations.keep(measuredAnnotation, each(measured, measuredToV1))
	}
	if b := from.Spec.Behavior; b != nil {
		annotations.keep(behaviorAnnotation, keptBehavior{ScaleUp: keptRulesOf(b.ScaleUp), ScaleDown: keptRulesOf(b.ScaleDown)})
	}
	if conditions := from.Status.Conditions; len(conditions) > 0 {
		annotations.keep(conditionsAnnotation, each(conditions, conditionToV1))
	}
	to.Annotations = annotations.annotations
	return annotations.err
}

// cpuUtilization returns the metric that autoscaling/v1 has a field for.
func cpuUtilization(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// targetUtilization returns the target of such a metric, and nil for others.
func targetUtilization(m *autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

// keptBehavior is the form of the annotation for the behavior. Unlike the types of v2 its fields
// have no JSON names.
type keptBehavior struct{ ScaleUp, ScaleDown *keptRules }

type keptRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []keptPolicy
	Tolerance                  *resource.Quantity
}

type keptPolicy struct {
	Type                 autoscalingv2.HPAScalingPolicyType
	Value, PeriodSeconds int32
}

func keptRulesOf(r *autoscalingv2.HPAScalingRules) *keptRules {
	if r == nil {
		return nil
	}
	policies := each(r.Policies, func(p *autoscalingv2.HPAScalingPolicy) keptPolicy {
		return keptPolicy{Type: p.Type, Value: p.Value, PeriodSeconds: p.PeriodSeconds}
	})
	return &keptRules{r.StabilizationWindowSeconds, r.SelectPolicy, policies, r.Tolerance}
}

func (r *keptRules) rules() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	policies := each(r.Policies, func(p *keptPolicy) autoscalingv2.HPAScalingPolicy {
		return autoscalingv2.HPAScalingPolicy{Type: p.Type, Value: p.Value, PeriodSeconds: p.PeriodSeconds}
	})
	return &autoscalingv2.HPAScalingRules{
		StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Policies: policies, Tolerance: r.Tolerance,
	}
}

// kept reads an annotation of this file.
func kept[T any](annotations map[string]string, key string) (value T, ok bool) {
	text, ok := annotations[key]
	if ok {
		ok = json.Unmarshal([]byte(text), &value) == nil
	}
	return value, ok
}

// withoutKept returns the annotations except the ones of this file.
func withoutKept(annotations map[string]string) map[string]string {
	own := []string{metricsAnnotation, measuredAnnotation, conditionsAnnotation, behaviorAnnotation, downToleranceRetired, upToleranceRetired}
	if !slices.ContainsFunc(own, func(key string) bool { _, ok := annotations[key]; return ok }) {
		return annotations
	}
	rest := maps.Clone(annotations)
	for _, key := range own {
		delete(rest, key)
	}
	return rest
}

// keeping adds annotations to an object. It copies the map first, because the map is shared.
type keeping struct {
	annotations map[string]string
	copied      bool
	err         error
}

func (k *keeping) keep(key string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		k.err = fmt.Errorf("convert an autoscaler to autoscaling/v1: %w", err)
		return
	}
	if !k.copied {
		rest := make(map[string]string, len(k.annotations)+1)
		maps.Copy(rest, k.annotations)
		k.annotations, k.copied = rest, true
	}
	k.annotations[key] = string(text)
}

// each converts the elements of a list.
func each[A, B any](list []A, convert func(*A) B) []B {
	if list == nil {
		return nil
	}
	converted := make([]B, len(list))
	for i := range list {
		converted[i] = convert(&list[i])
	}
	return converted
}
