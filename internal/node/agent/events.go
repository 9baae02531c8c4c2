package agent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// component is the source of the Events of nodes.
const component = "kubelet"

// record records Events about a pod. A pod that only the runtime knows has no name.
func (a *Agent) record(pod *corev1.Pod, events []lifecycle.Event) {
	for _, e := range events {
		if pod.Name == "" {
			return
		}
		about := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		}
		if e.Container != "" {
			about.FieldPath = fieldOf(pod, e.Container)
		}
		a.events.Event(pod.Spec.NodeName, about, e.Type, e.Reason, e.Message)
	}
}

// recordReadiness records that a node has become ready, or is no longer ready.
func (a *Agent) recordReadiness(node *corev1.Node) {
	reason := "NodeNotReady"
	if isReady(node) {
		reason = "NodeReady"
	}
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
	a.events.Event(node.Name, about, corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", node.Name, reason))
}

// fieldOf returns the path of a container in its pod.
func fieldOf(pod *corev1.Pod, container string) string {
	field := "containers"
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			field = "initContainers"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			field = "ephemeralContainers"
		}
	}
	return fmt.Sprintf("spec.%s{%s}", field, container)
}
