// Package nodelifecycle ends the pods that their nodes do not end, by three controllers of Kubernetes:
//
//	nodelifecycle, tainteviction
//	    node, its Lease ──▶ healthOf (pure): the conditions and taints that follow
//	    all nodes ──▶ outage.observe (pure): whether none is ready; then outage.spare drops taints that evict pods
//	    pod, the taints of its node, since when it has them ──▶ evictionTime (pure): whether and when the pod has to leave
//	podgc
//	    pods, nodes ──▶ decideRemovals (pure) ──▶ for each pod: phase Failed, deleted with grace 0
//
// The heartbeats of nodes are the Leases that node agents renew in kube-node-lease. A node without a
// heartbeat for the grace period gets readiness Unknown and the taint node.kubernetes.io/unreachable,
// and its pods count as not ready. Pods that do not tolerate a NoExecute taint are deleted, after their
// tolerationSeconds. They stay in the API as terminating until a node agent reports that they have
// ended: until then they may still be running.
//
// The tolerationSeconds of a pod begin when the pod and the taint meet: the taint may be older than the pod, and only some
// taints have a time. exposure_plan.go records it.
package nodelifecycle

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heartbeat is the time of a node's last heartbeat, by the clock of this process: the clocks of
// nodes may be wrong.
type heartbeat struct {
	renewed metav1.MicroTime // as the Lease says
	at      time.Time
}

// observe returns h updated from the current Lease, which may be missing.
func (h heartbeat) observe(lease *coordinationv1.Lease, now time.Time) heartbeat {
	switch {
	case lease == nil || lease.Spec.RenewTime == nil:
		if h.at.IsZero() {
			h.at = now
		}
	case h.at.IsZero() || !h.renewed.Equal(lease.Spec.RenewTime):
		return heartbeat{*lease.Spec.RenewTime, now}
	}
	return h
}

// health is the result of healthOf.
type health struct {
	// Conditions are all desired conditions of the node.
	Conditions []corev1.NodeCondition
	// Taints are all desired taints of the node.
	Taints []corev1.Taint
	// RequeueAfter is the time until the grace period is over; 0 if it already is.
	RequeueAfter time.Duration
}

// healthOf returns the desired conditions and taints of a node whose last heartbeat was seen at
// that time.
func healthOf(node *corev1.Node, last time.Time, grace time.Duration, now time.Time) health {
	h := health{Conditions: slices.Clone(node.Status.Conditions)}
	left := last.Add(grace).Sub(now)
	ready := readiness(node)
	switch {
	case left > 0:
		h.RequeueAfter = left
	case ready != corev1.ConditionUnknown:
		h.setUnknown(now)
		ready = corev1.ConditionUnknown
	}
	h.Taints = taints(node, ready, now)
	return h
}

// setUnknown makes every condition that the node agent reports unknown.
func (h *health) setUnknown(now time.Time) {
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		i := slices.IndexFunc(h.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		if i < 0 {
			h.Conditions = append(h.Conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now),
				Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
			})
			continue
		}
		c := &h.Conditions[i]
		if c.Status != corev1.ConditionUnknown {
			c.LastTransitionTime = metav1.NewTime(now)
		}
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// taints returns the taints that follow from readiness, pressure and cordoning, and the taints
// that others have put on the node.
func taints(node *corev1.Node, ready corev1.ConditionStatus, now time.Time) []corev1.Taint {
	wanted := map[string][]corev1.TaintEffect{}
	switch ready {
	case corev1.ConditionTrue:
	case corev1.ConditionUnknown:
		wanted[corev1.TaintNodeUnreachable] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	default:
		wanted[corev1.TaintNodeNotReady] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
	}
	if node.Spec.Unschedulable {
		wanted[corev1.TaintNodeUnschedulable] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule}
	}
	for kind, key := range map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure: corev1.TaintNodeMemoryPressure, corev1.NodeDiskPressure: corev1.TaintNodeDiskPressure,
		corev1.NodePIDPressure: corev1.TaintNodePIDPressure, corev1.NodeNetworkUnavailable: corev1.TaintNodeNetworkUnavailable,
	} {
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		}) {
			wanted[key] = []corev1.TaintEffect{corev1.TaintEffectNoSchedule}
		}
	}
	var all []corev1.Taint
	for _, taint := range node.Spec.Taints {
		if i := slices.Index(wanted[taint.Key], taint.Effect); i >= 0 {
			wanted[taint.Key] = slices.Delete(slices.Clone(wanted[taint.Key]), i, i+1)
			all = append(all, taint)
		} else if !ours(taint.Key) {
			all = append(all, taint)
		}
	}
	added := metav1.NewTime(now)
	for _, key := range ourTaints() {
		for _, effect := range wanted[key] {
			taint := corev1.Taint{Key: key, Effect: effect}
			if effect == corev1.TaintEffectNoExecute {
				taint.TimeAdded = &added
			}
			all = append(all, taint)
		}
	}
	return all
}

// ourTaints returns the keys of the taints that only this controller puts on nodes, in the order
// in which they are added.
func ourTaints() []string {
	return []string{
		corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable,
	}
}

func ours(key string) bool { return slices.Contains(ourTaints(), key) }
