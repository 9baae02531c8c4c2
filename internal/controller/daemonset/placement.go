package daemonset

import (
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Fit describes whether pods of a template may be on a node.
type Fit int

const (
	// Unfit nodes get no pod, and existing pods are deleted.
	Unfit Fit = iota
	// Tolerable nodes get no pod but keep an existing one: they have a taint that keeps new pods
	// away but does not evict existing ones.
	Tolerable
	// Fitting nodes have one pod.
	Fitting
)

// fitOf returns whether pods of a template may be on a node. The scheduler decides whether the
// node has enough resources.
func fitOf(template *corev1.PodTemplateSpec, node *corev1.Node) Fit {
	if name := template.Spec.NodeName; name != "" && name != node.Name {
		return Unfit
	}
	affinity := nodeaffinity.NewRequiredNodeAffinity(template.Spec.NodeSelector, template.Spec.Affinity)
	if matches, err := affinity.Match(node); err != nil || !matches {
		return Unfit // a term that cannot be parsed matches nothing
	}
	tolerated := tolerations(&template.Spec)
	fit := Fitting
	for _, taint := range node.Spec.Taints {
		if schedulingv1.TolerationsTolerateTaint(logr.Discard(), tolerated, &taint, true) {
			continue
		}
		switch taint.Effect {
		case corev1.TaintEffectNoExecute:
			return Unfit
		case corev1.TaintEffectNoSchedule:
			fit = Tolerable
		case corev1.TaintEffectPreferNoSchedule:
		}
	}
	return fit
}

// tolerations returns the tolerations of the template and the ones of every DaemonSet pod,
// which let it run in any state of the node.
func tolerations(spec *corev1.PodSpec) []corev1.Toleration {
	list := slices.Clone(spec.Tolerations)
	always := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		if i := slices.IndexFunc(list, func(other corev1.Toleration) bool { return other.MatchToleration(&t) }); i >= 0 {
			list[i] = t // without a time limit
		} else {
			list = append(list, t)
		}
	}
	always(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	always(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	always(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	always(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	always(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	always(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		always(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return list
}

// newPod returns a pod from the template for a node. The scheduler binds it to that node or not
// at all.
func newPod(template *corev1.PodTemplateSpec, namespace, node string) *corev1.Pod {
	pod := pods.FromTemplate(template, namespace)
	pod.Spec.Tolerations = tolerations(&template.Spec)
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// The node satisfies the template's requirements, so only its name is required.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}
	return pod
}

// nodeOf returns the node that a pod is bound to or meant for; empty for a pod that no
// DaemonSet created.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}
