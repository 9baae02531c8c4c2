package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
)

// Defaults that a pod gets on create. Templates do not have them, so controllers must not compare these fields of a pod
// with its template.

// evictAfter is the default time for which a pod stays on an unreachable node, in seconds.
const evictAfter = 300

func createPod(p *corev1.Pod) {
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
	p.Spec.Tolerations = tolerateLostNodes(p.Spec.Tolerations)
	podspec.MergeLabelKeys(&p.Spec, p.Labels)
	podspec.CompletePodResources(p)
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: qosClassOf(&p.Spec)}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates", LastTransitionTime: p.CreationTimestamp,
		}}
	}
}

// updatePod restores fields that a client may leave out: the priority and the preemption policy, the resources of the
// pod as a whole, and the default tolerations. It does not restore the names of the priority class and of the service account.
func updatePod(p, old *corev1.Pod) {
	p.Spec.DeprecatedServiceAccount = p.Spec.ServiceAccountName
	if p.Spec.Priority == nil {
		p.Spec.Priority = old.Spec.Priority
	}
	if p.Spec.PreemptionPolicy == nil {
		p.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
	}
	if p.Spec.Resources == nil {
		p.Spec.Resources = old.Spec.Resources.DeepCopy()
	}
	if hasTolerations(old.Spec.Tolerations) {
		p.Spec.Tolerations = tolerateLostNodes(p.Spec.Tolerations)
	}
}

// lostTaints returns the taints of nodes that are unreachable or not ready.
func lostTaints() []string { return []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} }

// tolerateLostNodes adds tolerations that let a pod survive a short outage of its node.
func tolerateLostNodes(tolerations []corev1.Toleration) []corev1.Toleration {
	for _, taint := range lostTaints() {
		if tolerates(tolerations, taint) {
			continue
		}
		// The array may be shared with the object that was sent.
		tolerations = append(slices.Clip(tolerations), corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(evictAfter)),
		})
	}
	return tolerations
}

func tolerates(tolerations []corev1.Toleration, taint string) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}

// hasTolerations reports whether a stored pod was created with these tolerations.
func hasTolerations(tolerations []corev1.Toleration) bool {
	return !slices.ContainsFunc(lostTaints(), func(taint string) bool { return !tolerates(tolerations, taint) })
}

// resolveClasses completes a pod from the classes that it names.
func resolveClasses(ctx context.Context, d registry.Registries, p *corev1.Pod) error {
	if err := resolvePriority(ctx, d, p); err != nil {
		return err
	}
	return applyRuntimeClass(ctx, d, p)
}

// resolvePriority sets the priority of a pod, which the scheduler reads, from its priority class. Only users who may
// create classes choose the values.
func resolvePriority(ctx context.Context, d registry.Registries, p *corev1.Pod) error {
	class, err := priorityClassOf(ctx, d, p)
	if err != nil {
		return err
	}
	p.Spec.PriorityClassName = class.Name
	policy := ptr.Deref(class.PreemptionPolicy, corev1.PreemptLowerPriority)
	if given := p.Spec.Priority; given != nil && *given != class.Value {
		return podForbidden(p, "the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *given, class.Value)
	}
	if given := p.Spec.PreemptionPolicy; given != nil && *given != policy {
		return podForbidden(p, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *given, policy)
	}
	p.Spec.Priority, p.Spec.PreemptionPolicy = &class.Value, &policy
	return nil
}

// priorityClassOf returns the class that a pod names, otherwise the default one, otherwise an empty one with the value
// 0.
func priorityClassOf(ctx context.Context, d registry.Registries, p *corev1.Pod) (*schedulingv1.PriorityClass, error) {
	classes, err := registry.ListFromCache[*schedulingv1.PriorityClass](ctx, d, schedulingv1.Resource("priorityclasses"))
	if err != nil {
		return nil, err
	}
	chosen := &schedulingv1.PriorityClass{}
	for _, class := range classes {
		switch {
		case p.Spec.PriorityClassName != "":
			if class.Name == p.Spec.PriorityClassName {
				return class, nil
			}
		case class.GlobalDefault && (chosen.Name == "" || class.Value < chosen.Value):
			chosen = class
		}
	}
	if name := p.Spec.PriorityClassName; name != "" {
		return nil, podForbidden(p, "no PriorityClass with name %s was found", name)
	}
	return chosen, nil
}

// podForbidden refuses a new pod, which may have no name yet.
func podForbidden(p *corev1.Pod, format string, args ...any) error {
	return apierrors.NewForbidden(corev1.Resource("pods"), cmp.Or(p.Name, p.GenerateName, "Unknown"), fmt.Errorf(format, args...))
}
