package placement_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestNodeRejectsPodsWithTheReasonsOfAKubelet checks that a node rejects pods with the reasons and messages of a kubelet.
func TestNodeRejectsPodsWithTheReasonsOfAKubelet(t *testing.T) {
	wants := func(name corev1.ResourceName, amount string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{name: resource.MustParse(amount)}
		}
	}
	strict := func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: ptr.To(corev1.SupplementalGroupsPolicyStrict)}
	}
	sidecarPort := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolTCP}}}}
	}
	unready := func(n *corev1.Node) { n.Status.Conditions, n.Spec.Unschedulable = nil, true }
	for name, test := range map[string]struct {
		node   func(*corev1.Node)
		others []*corev1.Pod
		pod    *corev1.Pod
		want   string
	}{
		"it fits":                        {nil, []*corev1.Pod{aPod("a", requests("3", "1Gi"))}, aPod("p", requests("1", "1Gi")), ""},
		"the node takes no new pods":     {unready, nil, aPod("p"), ""},
		"CPU":                            {nil, []*corev1.Pod{aPod("a", requests("3", "1Gi"))}, aPod("p", requests("1500m", "1Gi")), "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000"},
		"CPU of a pod that has ended":    {nil, []*corev1.Pod{aPod("a", requests("3", "1Gi"), ended)}, aPod("p", requests("1500m", "1Gi")), ""},
		"memory":                         {nil, nil, aPod("p", requests("1", "9Gi")), "OutOfmemory: Node didn't have enough resource: memory, requested: 9663676416, used: 0, capacity: 8589934592"},
		"CPU before memory":              {nil, nil, aPod("p", requests("5", "9Gi")), "OutOfcpu: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000"},
		"the number of pods":             {func(n *corev1.Node) { n.Status.Allocatable = list("4", "8Gi", "1") }, []*corev1.Pod{aPod("a")}, aPod("p"), "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"},
		"a resource of Kubernetes":       {nil, nil, aPod("p", wants("hugepages-2Mi", "2Mi")), "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0"},
		"a resource nobody knows":        {nil, nil, aPod("p", wants("example.com/gpu", "1")), ""},
		"a resource of another":          {func(n *corev1.Node) { n.Status.Allocatable["example.com/gpu"] = resource.MustParse("0") }, nil, aPod("p", wants("example.com/gpu", "1")), "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 1, used: 0, capacity: 0"},
		"node affinity":                  {nil, nil, aPod("p", named("other")), "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		"node selector":                  {nil, nil, aPod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"k": "v"} }), "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		"node selector that matches":     {nil, nil, aPod("p", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n"} }), ""},
		"a host port":                    {nil, []*corev1.Pod{aPod("a", hostPort("", 80))}, aPod("p", hostPort("127.0.0.1", 80)), "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		"a host port of a sidecar":       {nil, []*corev1.Pod{aPod("a", sidecarPort)}, aPod("p", hostPort("", 80)), "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		"another host port":              {nil, []*corev1.Pod{aPod("a", hostPort("", 80))}, aPod("p", hostPort("", 81)), ""},
		"a NoExecute taint":              {taint(corev1.TaintEffectNoExecute), nil, aPod("p"), "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
		"a NoExecute taint, tolerated":   {taint(corev1.TaintEffectNoExecute), nil, aPod("p", tolerates), ""},
		"a NoSchedule taint":             {taint(corev1.TaintEffectNoSchedule), nil, aPod("p"), ""},
		"the label of another system":    {nil, nil, aPod("p", func(p *corev1.Pod) { p.Labels = map[string]string{corev1.LabelOSStable: "windows"} }), "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
		"another system":                 {nil, nil, aPod("p", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"},
		"this system":                    {nil, nil, aPod("p", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Linux} }), ""},
		"groups that it does not bound":  {nil, nil, aPod("p", strict), "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node"},
		"groups that the node can bound": {func(n *corev1.Node) { n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)} }, nil, aPod("p", strict), ""},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(*corev1.Node) {}
			if test.node != nil {
				change = test.node
			}
			n := aNode("n", change)
			for _, other := range test.others {
				n.Add(other)
			}
			got := ""
			if r := n.Admit(test.pod); r != nil {
				got = r.Reason + ": " + r.Message
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if n.Pod("p") != nil {
				t.Error("asking has added the pod")
			}
		})
	}
}

// TestRemoveFunc checks that the resources of pods that are gone are free again.
func TestRemoveFunc(t *testing.T) {
	n := aNode("n")
	n.Add(aPod("a", requests("3", "1Gi")))
	n.Add(aPod("b", requests("1", "1Gi")))
	n.RemoveFunc(func(uid types.UID) bool { return uid == "a" })
	if n.Pod("a") != nil || n.Pod("b") == nil || n.Admit(aPod("p", requests("3", "1Gi"))) != nil || n.Admit(aPod("p", requests("4", "1Gi"))) == nil {
		t.Error("the CPU of a pod that was removed is not free, or that of another is")
	}
}
