package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// Rejection is the reason why a node does not run a pod that is bound to it, with the reason and
// the message of a kubelet.
type Rejection struct{ Reason, Message string }

// NodeAffinity is the reason for rejecting a pod that selects nodes by labels that the node does
// not have.
const NodeAffinity = "NodeAffinity"

// operatingSystem is the operating system of all nodes.
const operatingSystem = "linux"

// Admit checks whether a pod that is bound to the node can run there beside the pods that have been added: the
// client that bound the pod may have had an older view of the node and its pods. It returns nil if the pod can
// run. Unlike Place, it does not check whether the node is ready or schedulable.
func (n *Node) Admit(pod *corev1.Pod) *Rejection {
	if r := n.rejectedBySpec(pod); r != nil {
		return r
	}
	u := useOf(pod)
	if r := n.lacks(u); r != nil {
		return r
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.object); err != nil || !matches {
		return failedPredicate(NodeAffinity, "node(s) didn't match Pod's node affinity/selector")
	}
	if slices.ContainsFunc(u.ports, n.hasPort) {
		return failedPredicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
	}
	if _, tainted := untolerated(pod, n, corev1.TaintEffectNoExecute); tainted {
		return failedPredicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

// rejectedBySpec returns the rejection of a pod that the node could not run even without other pods.
func (n *Node) rejectedBySpec(pod *corev1.Pod) *Rejection {
	if label, labelled := pod.Labels[corev1.LabelOSStable]; labelled && label != operatingSystem {
		return &Rejection{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if os := pod.Spec.OS; os != nil && os.Name != operatingSystem {
		return &Rejection{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	f := n.object.Status.Features
	strict := pod.Spec.SecurityContext != nil && ptr.Deref(pod.Spec.SecurityContext.SupplementalGroupsPolicy, "") == corev1.SupplementalGroupsPolicyStrict
	if strict && (f == nil || !ptr.Deref(f.SupplementalGroupsPolicy, false)) {
		return &Rejection{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"}
	}
	return nil
}

// failedPredicate returns the rejection by a check whose only result is its failure.
func failedPredicate(name, why string) *Rejection {
	return &Rejection{name, fmt.Sprintf("Predicate %s failed: %s", name, why)}
}

// lacks returns the rejection for the first insufficient resource, or nil. It skips unknown
// extended resources, which may be resources of the cluster.
func (n *Node) lacks(u use) *Rejection {
	first := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(u.requests)), func(name corev1.ResourceName) bool { return slices.Contains(first, name) })
	for _, name := range append(first, others...) {
		amount := u.requests[name]
		if amount == 0 || amount <= n.free[name] {
			continue
		}
		allocatable, known := n.object.Status.Allocatable[name]
		if !known && isExtended(name) {
			continue
		}
		capacity := amounts(corev1.ResourceList{name: allocatable})[name]
		return &Rejection{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			name, amount, capacity-n.free[name], capacity)}
	}
	return nil
}

// isExtended reports whether a resource is not one of Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	domain, _, qualified := strings.Cut(string(name), "/")
	return qualified && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}
