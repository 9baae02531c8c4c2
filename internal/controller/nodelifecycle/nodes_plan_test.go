package nodelifecycle

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const grace = 50 * time.Second

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func aNode(ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(epoch)}}
	}
	return n
}

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

func TestConditionsAndTaintsFollowTheHeartbeat(t *testing.T) {
	const noSchedule, noExecute = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	cordoned := aNode("True")
	cordoned.Spec.Unschedulable = true
	pressed := aNode("True")
	pressed.Status.Conditions = append(pressed.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: "True"})
	for name, test := range map[string]struct {
		node         *corev1.Node
		silent       time.Duration
		ready        corev1.ConditionStatus
		taints       []string
		requeueAfter time.Duration
	}{
		"well":                   {node: aNode("True"), silent: 10 * time.Second, ready: "True", requeueAfter: 40 * time.Second},
		"silent for too long":    {node: aNode("True"), silent: grace, ready: "Unknown", taints: []string{"node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"}},
		"never heard of":         {node: aNode(""), silent: grace, ready: "Unknown", taints: []string{"node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"}},
		"new and not yet ready":  {node: aNode(""), requeueAfter: grace, taints: []string{"node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"}},
		"it says it is not":      {node: aNode("False"), requeueAfter: grace, ready: "False", taints: []string{"node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"}},
		"back again":             {node: aNode("True", taint(corev1.TaintNodeUnreachable, noExecute), taint(corev1.TaintNodeUnreachable, noSchedule)), requeueAfter: grace, ready: "True"},
		"taints of others stay":  {node: aNode("True", taint("gpu", noSchedule)), requeueAfter: grace, ready: "True", taints: []string{"gpu:NoSchedule"}},
		"cordoned":               {node: cordoned, requeueAfter: grace, ready: "True", taints: []string{"node.kubernetes.io/unschedulable:NoSchedule"}},
		"a disk that fills":      {node: pressed, requeueAfter: grace, ready: "True", taints: []string{"node.kubernetes.io/disk-pressure:NoSchedule"}},
		"what is there is right": {node: aNode("Unknown", taint(corev1.TaintNodeUnreachable, noExecute), taint(corev1.TaintNodeUnreachable, noSchedule)), silent: time.Hour, ready: "Unknown", taints: []string{"node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := healthOf(test.node, epoch.Add(-test.silent), grace, epoch)
			var got []string
			for _, taint := range v.Taints {
				got = append(got, taint.Key+":"+string(taint.Effect))
			}
			changed := &corev1.Node{Status: corev1.NodeStatus{Conditions: v.Conditions}}
			if readiness(changed) != test.ready || !slices.Equal(got, test.taints) || v.RequeueAfter != test.requeueAfter {
				t.Errorf("ready %q, taints %v, again in %s;\nwant %q, %v, %s", readiness(changed), got, v.RequeueAfter, test.ready, test.taints, test.requeueAfter)
			}
		})
	}
}

// A heartbeat counts from the time at which it is first seen, whatever its timestamp is.
func TestHeartbeatCountsFromWhenItIsSeen(t *testing.T) {
	lease := func(at time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}}}
	}
	wrong := epoch.Add(-24 * time.Hour)
	var h heartbeat
	for i, step := range []struct {
		lease *coordinationv1.Lease
		want  time.Duration
	}{
		{nil, 0}, {nil, 0}, {lease(wrong), 2}, {lease(wrong), 2}, {lease(wrong.Add(-time.Hour)), 4}, {nil, 4},
	} {
		h = h.observe(step.lease, epoch.Add(time.Duration(i)))
		if h.at.Sub(epoch) != step.want {
			t.Errorf("step %d: heard at %d, want %d", i, h.at.Sub(epoch), step.want)
		}
	}
}
