package builtin

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// NodeQuarantine is how long a node must have been missing before its pods are removed: a node that is created again
	// may have kept its pods.
	NodeQuarantine = 40 * time.Second
	// PodGarbagePeriod is the interval at which the pod garbage collector checks all pods if no event triggers that
	// sooner.
	PodGarbagePeriod = 20 * time.Second
)

// PodGarbage is why the pod garbage collector removes a pod; empty if the pod is left to its kubelet.
type PodGarbage string

// The reasons that depend on the pod and its node alone.
const (
	NodeGone         PodGarbage = "the node it is bound to is gone"
	NeverBound       PodGarbage = "it is terminating and is bound to no node"
	NodeOutOfService PodGarbage = "it is terminating and its node is out of service"
)

// NodeState is the part of a node that decides about its pods.
type NodeState struct {
	Exists, Ready bool
	// OutOfService is true if an administrator has tainted the node: it will not come back.
	OutOfService bool
}

// NodeStateOf returns the state of a node; nil stands for one that does not exist.
func NodeStateOf(node *corev1.Node) NodeState {
	if node == nil {
		return NodeState{}
	}
	return NodeState{
		Exists: true,
		Ready: slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
		OutOfService: slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }),
	}
}

// PodGarbageOf returns why the pod garbage collector removes a pod, which no kubelet will end. The controller acts on
// it, the preview plays it, and explain names it. A pod is removed because of NodeGone after the NodeQuarantine.
func PodGarbageOf(pod *corev1.Pod, node NodeState) PodGarbage {
	isTerminating := pod.DeletionTimestamp != nil
	switch {
	case pod.Spec.NodeName == "" && isTerminating:
		return NeverBound
	case pod.Spec.NodeName == "":
	case !node.Exists:
		return NodeGone
	case isTerminating && node.OutOfService && !node.Ready:
		return NodeOutOfService
	}
	return ""
}
