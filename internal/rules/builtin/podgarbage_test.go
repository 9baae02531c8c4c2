package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

func TestPodsThatNoKubeletEnds(t *testing.T) {
	onNode := func(name string) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{NodeName: name}} }
	ending := func(pod *corev1.Pod) *corev1.Pod {
		pod.DeletionTimestamp = new(metav1.Now())
		return pod
	}
	ready := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	lost := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
	tainted, back := lost.DeepCopy(), ready.DeepCopy()
	for _, n := range []*corev1.Node{tainted, back} {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute}}
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		node *corev1.Node
		want builtin.PodGarbage
	}{
		"it runs":                         {onNode("n"), ready, ""},
		"it waits for a node":             {onNode(""), nil, ""},
		"it is to end and never had one":  {ending(onNode("")), nil, builtin.NeverBound},
		"its node is gone":                {onNode("n"), nil, builtin.NodeGone},
		"it is to end, its node is gone":  {ending(onNode("n")), nil, builtin.NodeGone},
		"its node is not ready":           {ending(onNode("n")), lost, ""},
		"its node is out of service":      {ending(onNode("n")), tainted, builtin.NodeOutOfService},
		"it runs on, out of service":      {onNode("n"), tainted, ""},
		"out of service, but it is ready": {ending(onNode("n")), back, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := builtin.PodGarbageOf(test.pod, builtin.NodeStateOf(test.node)); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
