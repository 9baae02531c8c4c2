package daemonset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
}

func TestFitOf(t *testing.T) {
	const noSchedule, noExecute, prefer = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule
	taint := func(key string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Effect: effect}}
	}
	ssd := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}}}
	named := func(name string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}
	}
	unreadable := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: "Like"}}}
	for _, c := range []struct {
		name   string
		spec   corev1.PodSpec
		taints []corev1.Taint
		want   Fit
	}{
		{name: "any", want: Fitting},
		{name: "by its name", spec: corev1.PodSpec{NodeName: "one"}, want: Fitting},
		{name: "by another's name", spec: corev1.PodSpec{NodeName: "two"}, want: Unfit},
		{name: "by a label", spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, want: Fitting},
		{name: "by a label that it has not", spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "tape"}}, want: Unfit},
		{name: "by affinity", spec: corev1.PodSpec{Affinity: required(ssd)}, want: Fitting},
		{name: "by affinity to its name", spec: corev1.PodSpec{Affinity: required(named("one"))}, want: Fitting},
		{name: "by affinity to another's name", spec: corev1.PodSpec{Affinity: required(named("two"))}, want: Unfit},
		{name: "by one of several terms", spec: corev1.PodSpec{Affinity: required(named("two"), ssd)}, want: Fitting},
		{name: "by a term that cannot be read", spec: corev1.PodSpec{Affinity: required(unreadable)}, want: Unfit},
		{name: "tainted: no schedule", taints: taint("mine", noSchedule), want: Tolerable},
		{name: "tainted: no execute", taints: taint("mine", noExecute), want: Unfit},
		{name: "tainted: rather not", taints: taint("mine", prefer), want: Fitting},
		{name: "tainted twice", taints: append(taint("a", noSchedule), taint("b", noExecute)...), want: Unfit},
		{name: "tolerated", spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "mine", Operator: corev1.TolerationOpExists}}}, taints: taint("mine", noExecute), want: Fitting},
		{name: "not ready", taints: taint("node.kubernetes.io/not-ready", noExecute), want: Fitting},
		{name: "not ready, and not to be used", taints: taint("node.kubernetes.io/not-ready", noSchedule), want: Tolerable},
		{name: "unreachable", taints: taint("node.kubernetes.io/unreachable", noExecute), want: Fitting},
		{name: "cordoned", taints: taint("node.kubernetes.io/unschedulable", noSchedule), want: Fitting},
		{name: "disk pressure", taints: taint("node.kubernetes.io/disk-pressure", noSchedule), want: Fitting},
		{name: "memory pressure", taints: taint("node.kubernetes.io/memory-pressure", noSchedule), want: Fitting},
		{name: "pid pressure", taints: taint("node.kubernetes.io/pid-pressure", noSchedule), want: Fitting},
		{name: "no network", taints: taint("node.kubernetes.io/network-unavailable", noSchedule), want: Tolerable},
		{name: "no network needed", spec: corev1.PodSpec{HostNetwork: true}, taints: taint("node.kubernetes.io/network-unavailable", noSchedule), want: Fitting},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"disk": "ssd"}}, Spec: corev1.NodeSpec{Taints: c.taints}}
			if got := fitOf(&corev1.PodTemplateSpec{Spec: c.spec}, node); got != c.want {
				t.Errorf("fit %d, want %d", got, c.want)
			}
		})
	}
}

func TestNewPodIsForItsNode(t *testing.T) {
	preferred := []corev1.PreferredSchedulingTerm{{Weight: 1}}
	affinity := required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}}})
	affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = preferred
	seconds := int64(5)
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Affinity: affinity, Tolerations: []corev1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds},
		{Key: "mine", Operator: corev1.TolerationOpExists},
	}}}
	before := template.DeepCopy()
	pod := newPod(template, "ns", "one")
	if got := nodeOf(pod); got != "one" {
		t.Errorf("the pod is for %q", got)
	}
	got := pod.Spec.Affinity.NodeAffinity
	if diff := cmp.Diff(preferred, got.PreferredDuringSchedulingIgnoredDuringExecution); diff != "" || len(got.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != 1 {
		t.Errorf("affinity is %v", got)
	}
	if len(pod.Spec.Tolerations) != 7 || pod.Spec.Tolerations[0].TolerationSeconds != nil || pod.Spec.Tolerations[1].Key != "mine" {
		t.Errorf("tolerations are %v", pod.Spec.Tolerations)
	}
	if diff := cmp.Diff(before, template); diff != "" {
		t.Errorf("the template was changed (-want +got):\n%s", diff)
	}
}

func TestNodeOf(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  corev1.Pod
		want string
	}{
		{"bound", corev1.Pod{Spec: corev1.PodSpec{NodeName: "one", Affinity: newPod(&corev1.PodTemplateSpec{}, "", "two").Spec.Affinity}}, "one"},
		{"for no node", corev1.Pod{}, ""},
		{"of other affinity", corev1.Pod{Spec: corev1.PodSpec{Affinity: required(corev1.NodeSelectorTerm{})}}, ""},
	} {
		if got := nodeOf(&c.pod); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
