// Package podautoscaler is the horizontal pod autoscaler: it sets how many pods a target runs,
// according to metrics.
//
//	HorizontalPodAutoscaler, the target's scale, its pods, metrics ──▶ Decide (pure)
//	    ──▶ the new scale, if any, then the status, each in a write that fails if something changed
//
// replicas.go computes how many replicas a metric calls for, behavior.go applies the autoscaler's
// limits and its past to that number. Both are pure: the state between two syncs is a [Memory],
// an input and an output of Decide. It is lost when the controller stops; until it is complete
// again, nothing is scaled down.
//
// Metrics come from metrics.k8s.io, custom.metrics.k8s.io and external.metrics.k8s.io, which
// other servers serve. Without them nothing is scaled, and the condition ScalingActive has the
// reason.
package podautoscaler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Observed is the input for a decision about an autoscaler.
type Observed struct {
	Scale *autoscalingv1.Scale
	// Selector is the reason why the scale's selector cannot be used; nil if it can be used.
	Selector *Problem
	// Pods are the pods that the scale's selector selects.
	Pods []*corev1.Pod
	// Readings are the values of the metrics in the autoscaler's spec, in their order, if
	// NeedsMetrics.
	Readings []Reading
	Memory   Memory
	Now      time.Time
}

// Problem is the reason why the replicas cannot be computed.
type Problem struct {
	Event, Reason string // the reasons of the Event and of the condition; no Event if empty
	Text, Message string // the error, and the message of the condition
}

// Event is an Event about the autoscaler.
type Event struct{ Type, Reason, Message string }

// Plan is the result of Decide for an autoscaler.
type Plan struct {
	Status autoscalingv2.HorizontalPodAutoscalerStatus
	Events []Event
	// Replicas is the new scale of the target, written before anything else; nil if it stays.
	Replicas *int32
	// Why is the reason for Replicas in logs and errors.
	Why    string
	Memory Memory
}

// decision builds a Plan.
type decision struct {
	Plan
	hpa  *autoscalingv2.HorizontalPodAutoscaler
	seen Observed
}

// NeedsMetrics reports whether the number of replicas depends on metrics.
func NeedsMetrics(hpa *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale) bool {
	current := scale.Spec.Replicas
	if current == 0 {
		return wakes(hpa)
	}
	return current >= minReplicas(hpa) && current <= hpa.Spec.MaxReplicas
}

// wakes reports whether an autoscaler scales a target up that has no replicas: it has scaled the target to zero itself,
// and either metrics that exist without pods or a minimum can end that. A user who scales to zero disables scaling.
func wakes(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	asleep := slices.ContainsFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScaledToZero && c.Status == corev1.ConditionTrue
	})
	return asleep && (minReplicas(hpa) != 0 || isMeasuredElsewhere(hpa))
}

// isMeasuredElsewhere reports whether an autoscaler has metrics that exist without pods.
func isMeasuredElsewhere(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

func minReplicas(hpa *autoscalingv2.HorizontalPodAutoscaler) int32 {
	return ptr.Deref(hpa.Spec.MinReplicas, 1)
}

// Decide decides how many replicas the target of an autoscaler should have.
func Decide(hpa *autoscalingv2.HorizontalPodAutoscaler, seen Observed) Plan {
	d := newDecision(hpa, seen)
	current := seen.Scale.Spec.Replicas
	d.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	d.Status.CurrentReplicas, d.Status.CurrentMetrics, d.Status.ObservedGeneration = current, nil, &hpa.Generation
	d.Memory.start(current, seen.Now)
	desired := current
	switch {
	case current == 0 && !wakes(hpa):
		d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
	case current > hpa.Spec.MaxReplicas:
		desired, d.Why = hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas"
	case current != 0 && current < minReplicas(hpa):
		desired, d.Why = minReplicas(hpa), "Current number of replicas below Spec.MinReplicas"
	default:
		called, metric, ok := d.evaluate()
		if !ok {
			return d.Plan // with the reason in the status and the Events
		}
		switch {
		case called > current:
			d.Why = metric + " above target"
		case called < current:
			d.Why = "All metrics below target"
		}
		desired = d.normalize(called)
		if least := minReplicas(hpa); current == 0 && least > 0 {
			desired, d.Why = max(desired, least), cmp.Or(d.Why, "Current number of replicas below Spec.MinReplicas")
		}
	}
	d.Status.DesiredReplicas = desired
	if desired != current {
		d.Replicas = &desired
	}
	return d.Plan
}

func newDecision(hpa *autoscalingv2.HorizontalPodAutoscaler, seen Observed) *decision {
	d := &decision{hpa: hpa, seen: seen, Plan: Plan{Memory: seen.Memory.clone()}}
	d.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		CurrentReplicas: hpa.Status.CurrentReplicas, DesiredReplicas: hpa.Status.DesiredReplicas, LastScaleTime: hpa.Status.LastScaleTime,
		CurrentMetrics: hpa.Status.CurrentMetrics, Conditions: slices.Clone(hpa.Status.Conditions), ObservedGeneration: hpa.Status.ObservedGeneration,
	}
	return d
}

// evaluate returns the largest number of replicas that a metric calls for, and the name of that
// metric. It returns false if no number can be computed; the reasons are then in the plan.
func (d *decision) evaluate() (replicas int32, metric string, ok bool) {
	current := d.seen.Scale.Spec.Replicas
	if p := d.seen.Selector; p != nil {
		if p.Event != "" {
			d.warn(p.Event, p.Text)
		}
		d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, p.Reason, p.Message)
		d.warn("FailedComputeMetricsReplicas", p.Text)
		return 0, "", false
	}
	specs := d.hpa.Spec.Metrics
	d.Status.CurrentMetrics = make([]autoscalingv2.MetricStatus, len(specs))
	var first *failure
	failed := 0
	for i := range specs {
		called, err := d.proposal(&specs[i], &d.seen.Readings[i])
		if err != nil {
			d.warn(err.reason, err.inner)
			if failed++; first == nil {
				first = err
			}
			continue
		}
		d.Status.CurrentMetrics[i] = called.status
		if replicas == 0 || called.replicas > replicas {
			replicas, metric = called.replicas, called.name
		}
	}
	// Some of the metrics are enough to scale up, as the others could only call for more.
	if failed == len(specs) || failed > 0 && replicas < current {
		message := "there are no metrics"
		if first != nil {
			message = fmt.Sprintf("invalid metrics (%d invalid out of %d), first error is: %s", failed, len(specs), first.text)
			d.set(autoscalingv2.ScalingActive, corev1.ConditionFalse, first.reason, "the HPA was unable to compute the replica count: "+first.inner)
		}
		d.warn("FailedComputeMetricsReplicas", message)
		return 0, "", false
	}
	d.set(autoscalingv2.ScalingActive, corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+metric)
	return replicas, metric, true
}

// WithoutScale is the plan for an autoscaler whose target, or its scale, cannot be read.
func WithoutScale(hpa *autoscalingv2.HorizontalPodAutoscaler, reason error, memory Memory, now time.Time) Plan {
	d := newDecision(hpa, Observed{Memory: memory, Now: now})
	d.warn("FailedGetScale", reason.Error())
	d.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedGetScale", "the HPA controller was unable to get the target's current scale: "+reason.Error())
	return d.Plan
}

// Scaled completes a plan whose Replicas have been written to the target, or could not be.
func Scaled(hpa *autoscalingv2.HorizontalPodAutoscaler, p Plan, failure error, now time.Time) Plan {
	d := &decision{Plan: p, hpa: hpa, seen: Observed{Now: now}}
	size := *p.Replicas
	if failure != nil {
		d.warn("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", size, p.Why, failure))
		d.set(autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", failure))
		d.Status.DesiredReplicas = hpa.Status.DesiredReplicas
		return d.Plan
	}
	d.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", size))
	d.Events = append(d.Events, Event{corev1.EventTypeNormal, "SuccessfulRescale", fmt.Sprintf("New size: %d; reason: %s", size, p.Why)})
	if size == 0 && minReplicas(hpa) == 0 && isMeasuredElsewhere(hpa) {
		d.set(autoscalingv2.ScaledToZero, corev1.ConditionTrue, "ScaledToZero", "the HPA controller scaled the workload to zero")
	} else {
		d.set(autoscalingv2.ScaledToZero, corev1.ConditionFalse, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
	}
	d.Status.LastScaleTime = new(metav1.NewTime(now))
	d.Memory.scaled(hpa.Spec.Behavior, size-p.Status.CurrentReplicas, now)
	return d.Plan
}

func (d *decision) warn(reason, message string) {
	d.Events = append(d.Events, Event{corev1.EventTypeWarning, reason, message})
}

// set sets a condition. Its time changes with its status only.
func (d *decision) set(kind autoscalingv2.HorizontalPodAutoscalerConditionType, status corev1.ConditionStatus, reason, message string) {
	conditions := &d.Status.Conditions
	i := slices.IndexFunc(*conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind })
	if i < 0 {
		i = len(*conditions)
		*conditions = append(*conditions, autoscalingv2.HorizontalPodAutoscalerCondition{Type: kind})
	}
	c := &(*conditions)[i]
	if c.Status != status {
		c.LastTransitionTime = metav1.NewTime(d.seen.Now)
	}
	c.Status, c.Reason, c.Message = status, reason, message
}

// Autoscaler names an autoscaler.
type Autoscaler struct{ Name, Namespace string }

// SelectorProblem returns the reason why the selector of a scale cannot be used: it is missing or
// wrong, or several autoscalers scale the pods that it selects; nil if it can be used.
func SelectorProblem(selector string, parsing error, autoscalers []Autoscaler) *Problem {
	switch {
	case selector == "":
		return &Problem{Event: "SelectorRequired", Reason: "InvalidSelector", Text: "selector is required", Message: "the HPA target's scale is missing a selector"}
	case parsing != nil:
		text := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", parsing)
		return &Problem{Event: "InvalidSelector", Reason: "InvalidSelector", Text: text, Message: text}
	case len(autoscalers) > 1:
		text := fmt.Sprintf("pods by selector %s are controlled by multiple HPAs: %v", selector, autoscalers)
		return &Problem{Event: "AmbiguousSelector", Reason: "AmbiguousSelector", Text: text, Message: text}
	}
	return nil
}
