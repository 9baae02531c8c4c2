package placement_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
)

func aNode(name string, change ...func(*corev1.Node)) *placement.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = list("4", "8Gi", "10")
	for _, c := range change {
		c(n)
	}
	return placement.NewNode(n)
}

func clusterOf(nodes ...*placement.Node) *placement.Cluster {
	c := placement.NewCluster()
	for _, n := range nodes {
		c.AddNode(n)
	}
	return c
}

func list(cpu, memory, pods string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods),
	}
}

func aPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

func requests(cpu, memory string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
}

func hostPort(ip string, number int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostIP: ip, HostPort: number, Protocol: corev1.ProtocolTCP})
	}
}

func ended(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func taint(effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: effect}} }
}

func tolerates(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func named(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}},
		}}}
	}
}

func prefers(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}},
		}}}
	}
}

func ownedBy(owner types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: owner, Controller: new(true)}}
	}
}

func notReady(n *corev1.Node)      { n.Status.Conditions = nil }
func unschedulable(n *corev1.Node) { n.Spec.Unschedulable = true }

func holding(n *placement.Node, pods ...*corev1.Pod) *placement.Node {
	for _, p := range pods {
		n.Add(p)
	}
	return n
}

func TestPodGoesToTheNodeThatFits(t *testing.T) {
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		nodes []*placement.Node
		want  string // the node, or the reasons
	}{
		"no nodes":                 {aPod("p"), nil, "0/0 nodes are available."},
		"one":                      {aPod("p"), []*placement.Node{aNode("a")}, "a"},
		"not ready":                {aPod("p"), []*placement.Node{aNode("a", notReady), aNode("b")}, "b"},
		"unschedulable":            {aPod("p"), []*placement.Node{aNode("a", unschedulable)}, "0/1 nodes are available: 1 node(s) were unschedulable."},
		"unschedulable, tolerated": {aPod("p", tolerates), []*placement.Node{aNode("a", unschedulable)}, "a"},
		"reasons are counted":      {aPod("p", requests("5", "1Gi")), []*placement.Node{aNode("a"), aNode("b"), aNode("c", notReady)}, "0/3 nodes are available: 1 node(s) were not ready, 2 Insufficient cpu."},
		"taint":                    {aPod("p"), []*placement.Node{aNode("a", taint(corev1.TaintEffectNoSchedule)), aNode("b", taint(corev1.TaintEffectNoExecute))}, "0/2 nodes are available: 2 node(s) had untolerated taint {k: v}."},
		"taint, tolerated":         {aPod("p", tolerates), []*placement.Node{aNode("a", taint(corev1.TaintEffectNoSchedule))}, "a"},
		"taint, preferred":         {aPod("p"), []*placement.Node{aNode("a", taint(corev1.TaintEffectPreferNoSchedule)), holding(aNode("b"), aPod("o", requests("3", "7Gi")))}, "b"},
		"selector":                 {aPod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "b"} }), []*placement.Node{aNode("a"), aNode("b")}, "b"},
		"affinity":                 {aPod("p", named("b")), []*placement.Node{aNode("a"), aNode("b")}, "b"},
		"affinity, none":           {aPod("p", named("x")), []*placement.Node{aNode("a")}, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."},
		"preferred affinity":       {aPod("p", prefers("b")), []*placement.Node{aNode("a"), holding(aNode("b"), aPod("o", requests("3", "7Gi"))), aNode("c")}, "b"},
		"resources in use":         {aPod("p", requests("2", "1Gi")), []*placement.Node{holding(aNode("a"), aPod("o", requests("3", "1Gi"))), aNode("b")}, "b"},
		"of ended pods":            {aPod("p", requests("2", "1Gi")), []*placement.Node{holding(aNode("a"), aPod("o", requests("3", "1Gi"), ended))}, "a"},
		"two reasons":              {aPod("p", requests("5", "9Gi")), []*placement.Node{aNode("a")}, "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."},
		"too many pods":            {aPod("p"), []*placement.Node{aNode("a", func(n *corev1.Node) { n.Status.Allocatable = list("4", "8Gi", "0") })}, "0/1 nodes are available: 1 Too many pods."},
		"port":                     {aPod("p", hostPort("", 80)), []*placement.Node{holding(aNode("a"), aPod("o", hostPort("127.0.0.1", 80))), aNode("b")}, "b"},
		"port, other":              {aPod("p", hostPort("127.0.0.1", 80)), []*placement.Node{holding(aNode("a"), aPod("o", hostPort("127.0.0.2", 80), hostPort("", 81)))}, "a"},
		"port, taken":              {aPod("p", hostPort("127.0.0.1", 80)), []*placement.Node{holding(aNode("a"), aPod("o", hostPort("", 80)))}, "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."},
		"siblings apart":           {aPod("p", ownedBy("rs")), []*placement.Node{holding(aNode("a"), aPod("o", ownedBy("rs"))), holding(aNode("b"), aPod("x", requests("2", "4Gi"), ownedBy("other")))}, "b"},
		"claims on devices":        {aPod("p", func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }), []*placement.Node{aNode("a")}, "0/1 nodes are available: 1 cannot allocate all claims (this scheduler allocates no devices)."},
		"most left":                {aPod("p"), []*placement.Node{holding(aNode("a"), aPod("o", requests("2", "1Gi"))), holding(aNode("b"), aPod("x", requests("1", "1Gi")))}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			node, err := clusterOf(test.nodes...).Place(test.pod)
			if none, ok := errors.AsType[placement.Unplaced](err); ok {
				got = none.Error()
			} else if err != nil {
				t.Fatal(err)
			} else {
				got = node.Name()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestPodsOfOneControllerSpreadEvenly checks that pods of one controller spread evenly, and that removed pods free resources.
func TestPodsOfOneControllerSpreadEvenly(t *testing.T) {
	nodes := []*placement.Node{aNode("a"), aNode("b"), aNode("c")}
	cluster := clusterOf(nodes...)
	for i := range 30 {
		pod := aPod(fmt.Sprint(i), ownedBy("rs"))
		node, err := cluster.Place(pod)
		if err != nil {
			t.Fatal(err)
		}
		node.Add(pod)
	}
	for _, n := range nodes {
		if n.Pods() != 10 {
			t.Errorf("%d pods on %s", n.Pods(), n.Name())
		}
	}
	if _, err := cluster.Place(aPod("p")); err == nil {
		t.Error("a pod is placed on a node without the resources")
	}
	nodes[1].Remove("1")
	for range 3 {
		nodes[1].Remove("1") // once
	}
	if node, err := cluster.Place(aPod("p")); err != nil || node != nodes[1] {
		t.Errorf("%v, %v", node, err)
	}
	nodes[1].Add(aPod("p"))
	if _, err := cluster.Place(aPod("q")); err == nil {
		t.Error("a pod is placed on a node without the resources")
	}
}

// TestUpdateKeepsWhatIsTaken checks that a heartbeat of a node does not free the resources of its pods.
func TestUpdateKeepsWhatIsTaken(t *testing.T) {
	n := holding(aNode("a"), aPod("o", requests("3", "1Gi")))
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	object.Status.Allocatable = list("4", "8Gi", "10")
	n.Update(object)
	if _, err := clusterOf(n).Place(aPod("p", requests("2", "1Gi"))); err == nil {
		t.Error("a pod is placed on a node without the resources")
	}
}
