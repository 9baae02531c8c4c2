package preview

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// endPod lets the node of a pod end it. The pod stays if its node is known to be gone or not to answer.
func (p *play) endPod(o *object) {
	if n := p.nodeOf(o); o.grace > 0 && n.Exists && n.Ready {
		_ = p.endAtOnce(o, ByNode)
	}
}

// collectPods lets the pod garbage collector work: it looks at pods that are being deleted, and at those whose nodes
// were deleted.
func (p *play) collectPods() {
	abandoned := p.abandoned
	p.abandoned = nil
	for _, pod := range abandoned {
		p.collectPod(p.load(pod))
	}
	p.each(podCollector, p.collectPod)
}

// collectPod removes a pod that no node ends.
func (p *play) collectPod(o *object) {
	if o.removed || o.deleting && o.grace == 0 && len(o.now.Finalizers) > 0 {
		return // another DELETE changes nothing
	}
	why := builtin.PodGarbageOf(p.stored(o).(*corev1.Pod), p.nodeOf(o))
	if why != "" && p.endAtOnce(o, ByPodCollector) == nil {
		o.garbage = why
	}
}

// endAtOnce deletes a pod without a grace period. If admission refuses that, the pod stays.
func (p *play) endAtOnce(o *object, by Actor) error {
	now := int64(0)
	return p.deleteWith(o, &metav1.DeleteOptions{GracePeriodSeconds: &now}, by)
}

// nodeOf returns the state of the node that a pod is bound to. A node counts as ready if nothing is known of it.
func (p *play) nodeOf(o *object) builtin.NodeState {
	ready := builtin.NodeState{Exists: true, Ready: true}
	pod := p.inventory.Pods[o.UID]
	if pod == nil || pod.Node == "" {
		return ready
	}
	switch known := p.nodes[pod.Node]; {
	case known == nil && p.isNodeGone(pod.Node):
		return builtin.NodeState{}
	case known != nil && p.objects[known.UID] != nil && p.objects[known.UID].removed:
		return builtin.NodeState{}
	}
	if p.options.Node == nil {
		return ready
	}
	return p.options.Node(pod.Node)
}

// isNodeGone reports whether the inventory shows that there is no node with a name.
func (w *Cluster) isNodeGone(name string) bool {
	nodes := w.inventory.Resource(inventory.NodeKind())
	return nodes != nil && w.nodes[name] == nil && w.inventory.Complete(nodes, "")
}
