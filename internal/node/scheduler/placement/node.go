// Package placement decides which node a pod goes to. It has no I/O, no goroutines and no clock.
// Its input is nodes, pods and the labels of namespaces; its output is a node, or the reasons why
// no node fits.
//
// A node does not fit if it is not ready or is unschedulable, if it has a taint that the pod does
// not tolerate, if the pod's node selector or required node affinity does not match it, if a host
// port is taken, or if its allocatable resources are less than the requests of its pods and this
// one. It does not fit either if the pod would violate there one of its topology spread constraints
// (DoNotSchedule), its required affinity or anti-affinity, or the required anti-affinity of a pod
// that is already placed.
//
// The criteria for the remaining nodes are, in this order: the preferences of the pod for nodes
// (preferred node affinity, no PreferNoSchedule taint), the preferences between the pod and the
// pods near the node (preferred affinity and anti-affinity), the spread (ScheduleAnyway), the
// fewest pods of the same controller, the most free resources.
//
// A [Cluster] counts pods only for pods that have constraints on others. Pods without such
// constraints pay only for the required anti-affinity of others.
package placement

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Node is a node with the pods that are bound to it or are being bound. Create one with NewNode.
type Node struct {
	object  *corev1.Node
	cluster *Cluster                      // nil until it is part of one
	free    map[corev1.ResourceName]int64 // free allocatable amounts, milli units for CPU
	pods    map[types.UID]use
	ports   map[port]int      // how many pods have it
	owned   map[types.UID]int // pods by controller
}

// use is the usage of a node by a pod.
type use struct {
	pod      *corev1.Pod
	peering  *peering
	requests map[corev1.ResourceName]int64
	ports    []port
	owner    types.UID
}

// port is a port of a node.
type port struct {
	ip       string
	protocol corev1.Protocol
	number   int32
}

// NewNode returns a node without pods.
func NewNode(object *corev1.Node) *Node {
	n := &Node{pods: map[types.UID]use{}, ports: map[port]int{}, owned: map[types.UID]int{}}
	n.Update(object)
	return n
}

// Update replaces the node's object.
func (n *Node) Update(object *corev1.Node) {
	n.object, n.free = object, amounts(object.Status.Allocatable)
	for _, u := range n.pods {
		n.take(u.requests, -1)
	}
}

// Name returns the node's name.
func (n *Node) Name() string { return n.object.Name }

// Pods returns the number of pods on the node.
func (n *Node) Pods() int { return len(n.pods) }

// Pod returns the pod with this UID, or nil if it is not on the node.
func (n *Node) Pod(uid types.UID) *corev1.Pod { return n.pods[uid].pod }

// Requests returns the amounts that a pod takes of the node, milli units for CPU, or nil if it is not on the node. The
// caller must not modify them.
func (n *Node) Requests(uid types.UID) map[corev1.ResourceName]int64 { return n.pods[uid].requests }

// Add adds a pod to the node. A finished pod needs no resources.
func (n *Node) Add(pod *corev1.Pod) {
	n.Remove(pod.UID)
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	u := useOf(pod)
	if n.cluster != nil {
		u.peering = n.cluster.join(n, pod)
	}
	n.pods[pod.UID] = u
	n.take(u.requests, -1)
	for _, p := range u.ports {
		n.ports[p]++
	}
	if u.owner != "" {
		n.owned[u.owner]++
	}
}

// Remove removes a pod from the node, if it is on it.
func (n *Node) Remove(uid types.UID) {
	u, ok := n.pods[uid]
	if !ok {
		return
	}
	delete(n.pods, uid)
	u.peering.leave(n, u.pod)
	n.take(u.requests, 1)
	for _, p := range u.ports {
		if n.ports[p]--; n.ports[p] == 0 {
			delete(n.ports, p)
		}
	}
	if n.owned[u.owner]--; n.owned[u.owner] <= 0 {
		delete(n.owned, u.owner)
	}
}

// RemoveFunc removes the pods for which gone returns true.
func (n *Node) RemoveFunc(gone func(types.UID) bool) {
	for uid := range n.pods {
		if gone(uid) {
			n.Remove(uid)
		}
	}
}

func (n *Node) take(requests map[corev1.ResourceName]int64, sign int64) {
	for name, amount := range requests {
		n.free[name] += sign * amount
	}
}

func useOf(pod *corev1.Pod) use {
	u := use{pod: pod, requests: amounts(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))}
	if u.requests == nil {
		u.requests = map[corev1.ResourceName]int64{}
	}
	u.requests[corev1.ResourcePods] = 1
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			u.ports = append(u.ports, hostPorts(c)...) // a sidecar runs as long as the pod
		}
	}
	for i := range pod.Spec.Containers {
		u.ports = append(u.ports, hostPorts(&pod.Spec.Containers[i])...)
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		u.owner = owner.UID
	}
	return u
}

func hostPorts(c *corev1.Container) []port {
	var all []port
	for _, p := range c.Ports {
		if p.HostPort > 0 {
			all = append(all, port{hostIP(p.HostIP), p.Protocol, p.HostPort})
		}
	}
	return all
}

// anyIP is the address of a host port without an address.
const anyIP = "0.0.0.0"

func hostIP(ip string) string {
	if ip == "" {
		return anyIP
	}
	return ip
}

// hasPort reports whether a port is in use on this address or on all addresses.
func (n *Node) hasPort(wanted port) bool {
	if wanted.ip != anyIP {
		all := wanted
		all.ip = anyIP
		return n.ports[wanted] > 0 || n.ports[all] > 0
	}
	for taken := range maps.Keys(n.ports) {
		if taken.number == wanted.number && taken.protocol == wanted.protocol {
			return true
		}
	}
	return false
}

func amounts(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	all := make(map[corev1.ResourceName]int64, len(list)+1)
	for name, q := range list {
		if name == corev1.ResourceCPU {
			all[name] = q.MilliValue()
		} else {
			all[name] = q.Value()
		}
	}
	return all
}
