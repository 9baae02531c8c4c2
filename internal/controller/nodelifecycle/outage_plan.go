package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// labelExcluded marks nodes that do not count, as in kube-controller-manager.
const labelExcluded = "node.kubernetes.io/exclude-disruption"

// outage is the state of all nodes together. While no node is ready, the network or the control plane has failed rather than
// each node, and pods could not be started elsewhere: none is evicted. Nodes get a new grace period when the first one is
// ready again, since the others need time to report, too.
type outage struct {
	// total means that there are nodes, and none is ready.
	total bool
	// ended is when the last one ended; zero if there was none.
	ended time.Time
}

// observe returns the outage updated from the present nodes.
func (o outage) observe(nodes []*corev1.Node, now time.Time) outage {
	counted, ready := false, false
	for _, node := range nodes {
		if _, excluded := node.Labels[labelExcluded]; excluded {
			continue
		}
		counted = true
		if ready = readiness(node) == corev1.ConditionTrue; ready {
			break
		}
	}
	was := o.total
	if o.total = counted && !ready; was && !o.total {
		o.ended = now
	}
	return o
}

// spare removes from the health of a node the taints that evict pods, during an outage and in the grace period after it.
// Taints that are added later carry that later time, so tolerationSeconds begin then.
func (o outage) spare(h health, grace time.Duration, now time.Time) health {
	left := o.ended.Add(grace).Sub(now)
	if !o.total && (o.ended.IsZero() || left <= 0) {
		return h
	}
	all := len(h.Taints)
	h.Taints = slices.DeleteFunc(h.Taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoExecute && (taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable)
	})
	if len(h.Taints) < all && !o.total && (h.RequeueAfter == 0 || left < h.RequeueAfter) {
		h.RequeueAfter = left
	}
	return h
}
