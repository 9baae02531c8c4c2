// Package podgc has the rule of the pod garbage collector: which pods it removes because no kubelet will, and when.
// It is pure: the controller acts on its decisions, the preview plays them, and explain names them.
package podgc

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// Quarantine is how long a node must have been missing before its pods are removed: a node that is created again may
	// have kept its pods.
	Quarantine = 40 * time.Second
	// Period is the interval at which all pods are checked if no event triggers that sooner.
	Period = 20 * time.Second
)

// Reason is why a pod is removed; empty if it is left to its kubelet.
type Reason string

// The reasons that depend on the pod and its node alone.
const (
	NodeGone         Reason = "the node it is bound to is gone"
	NeverBound       Reason = "it is terminating and is bound to no node"
	NodeOutOfService Reason = "it is terminating and its node is out of service"
)

// Node is what the pods of a node depend on.
type Node struct {
	Exists, Ready bool
	// OutOfService is true if an administrator has tainted the node: it will not come back.
	OutOfService bool
}

// NodeOf returns the state of a node; nil stands for one that does not exist.
func NodeOf(node *corev1.Node) Node {
	if node == nil {
		return Node{}
	}
	return Node{
		Exists: true,
		Ready: slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
		OutOfService: slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }),
	}
}

// Decide returns why a pod is removed. A pod with the reason NodeGone is removed after the Quarantine of its node.
func Decide(pod *corev1.Pod, node Node) Reason {
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
