package nodelifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

func pod(name, node string, phase corev1.PodPhase, terminating bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(epoch)},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
	}
	if terminating {
		p.DeletionTimestamp = &metav1.Time{Time: epoch}
	}
	return p
}

func node(ready corev1.ConditionStatus, taints ...string) *corev1.Node {
	n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}
	return n
}

func TestPodsThatNoKubeletRemovesAreRemoved(t *testing.T) {
	const running, succeeded = corev1.PodRunning, corev1.PodSucceeded
	limits := PodLimits{Finished: 2, Missing: 40 * time.Second}
	for name, test := range map[string]struct {
		pods   []*corev1.Pod
		nodes  map[string]*corev1.Node
		missed map[string]time.Time
		want   []removal // by name and reason
		wait   time.Duration
	}{
		"a pod that runs":                 {pods: []*corev1.Pod{pod("a", "n", running, false)}, nodes: map[string]*corev1.Node{"n": node("True")}},
		"a pod that waits for a node":     {pods: []*corev1.Pod{pod("a", "", corev1.PodPending, false)}},
		"it is to end and never had one":  {pods: []*corev1.Pod{pod("a", "", corev1.PodPending, true)}, want: []removal{{pod("a", "", "", true), builtin.NeverBound}}},
		"its node was just missed":        {pods: []*corev1.Pod{pod("a", "n", running, false)}, missed: map[string]time.Time{"n": epoch}, wait: 40 * time.Second},
		"its node is missed for long":     {pods: []*corev1.Pod{pod("a", "n", running, false)}, missed: map[string]time.Time{"n": epoch.Add(-time.Minute)}, want: []removal{{pod("a", "n", "", false), builtin.NodeGone}}},
		"terminating on a node":           {pods: []*corev1.Pod{pod("a", "n", running, true)}, nodes: map[string]*corev1.Node{"n": node("Unknown", corev1.TaintNodeUnreachable)}},
		"on a node out of service":        {pods: []*corev1.Pod{pod("a", "n", running, true)}, nodes: map[string]*corev1.Node{"n": node("Unknown", corev1.TaintNodeOutOfService)}, want: []removal{{pod("a", "n", "", true), builtin.NodeOutOfService}}},
		"out of service, but it is ready": {pods: []*corev1.Pod{pod("a", "n", running, true)}, nodes: map[string]*corev1.Node{"n": node("True", corev1.TaintNodeOutOfService)}},
		"too many have finished": {
			pods:  []*corev1.Pod{pod("c", "n", succeeded, false), pod("a", "n", corev1.PodFailed, false), pod("b", "n", succeeded, false), pod("d", "n", succeeded, true)},
			nodes: map[string]*corev1.Node{"n": node("True")}, want: []removal{{pod("a", "n", "", false), tooManyFinished}},
		},
		"for two reasons once": {
			pods:   []*corev1.Pod{pod("a", "n", succeeded, false), pod("b", "n", succeeded, false), pod("c", "n", succeeded, false)},
			missed: map[string]time.Time{"n": epoch.Add(-time.Minute)},
			want:   []removal{{pod("a", "n", "", false), builtin.NodeGone}, {pod("b", "n", "", false), builtin.NodeGone}, {pod("c", "n", "", false), builtin.NodeGone}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, wait := decideRemovals(podsAndNodes{Pods: test.pods, Nodes: test.nodes, MissedSince: test.missed}, limits, epoch)
			say := func(list []removal) (lines []string) {
				for _, r := range list {
					lines = append(lines, fmt.Sprint(r.Pod.Name, ": ", r.Reason))
				}
				return lines
			}
			if !slices.Equal(say(got), say(test.want)) || wait != test.wait {
				t.Errorf("%v and again in %s, want %v and %s", say(got), wait, say(test.want), test.wait)
			}
		})
	}
}
