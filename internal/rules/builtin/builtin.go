// Package builtin contains the rules about single kinds: how the deletion of pods, namespaces, Jobs,
// ReplicationControllers and Events differs from that of all other objects, which objects no server deletes, which
// resources serve the same objects, and which pods are garbage because no kubelet ends them. It stands apart because it
// needs the types of Kubernetes, which take longer to compile than all other rules.
package builtin

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// StrategyOf returns the rules specific to a built-in resource. The server deletes by them, and the
// tools predict by them. Any other resource is deleted like custom resources.
func StrategyOf(r schema.GroupResource) deletion.Strategy {
	s := ownStrategyOf(r)
	s.Resource = r
	return s
}

// ownStrategyOf returns the strategy of a resource without its name.
func ownStrategyOf(r schema.GroupResource) deletion.Strategy {
	switch r {
	case corev1.Resource("pods"):
		return deletion.Strategy{Grace: PodGrace}
	case corev1.Resource("namespaces"):
		// Besides metadata.finalizers there is spec.finalizers; a namespace stays until both
		// lists are empty (NS-23).
		return deletion.Strategy{
			Pending:               func(obj runtime.Object) bool { return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0 },
			OnMark:                func(obj runtime.Object) { obj.(*corev1.Namespace).Status.Phase = corev1.NamespaceTerminating },
			OrphanDependentsFalse: metav1.DeletePropagationForeground,
		}
	case schema.GroupResource{Group: "batch", Resource: "jobs"}, corev1.Resource("replicationcontrollers"):
		return deletion.Strategy{DefaultPropagation: metav1.DeletePropagationOrphan}
	case corev1.Resource("events"), schema.GroupResource{Group: "events.k8s.io", Resource: "events"}:
		// The collector does not watch events, so it would never remove its finalizers from them.
		return deletion.Strategy{CollectorDisabled: true}
	}
	return deletion.Strategy{}
}

// PodGrace returns how long a pod may take to terminate. If nothing runs, because the pod is not
// bound or has finished, the period is 0.
func PodGrace(obj runtime.Object, requested *int64) (seconds int64, graceful bool) {
	p := obj.(*corev1.Pod)
	switch {
	case p.Spec.NodeName == "", p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return 0, true
	case requested != nil:
		seconds = *requested
	case p.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *p.Spec.TerminationGracePeriodSeconds
	}
	if seconds < 0 {
		// A mistake must not kill the pod at once, so this is the shortest grace period.
		seconds = 1
	}
	return seconds, true
}
