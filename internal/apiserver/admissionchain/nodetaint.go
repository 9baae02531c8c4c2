package admissionchain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

// nodeTaint taints every new Node as not ready. The node controller removes the taint when the node is
// ready; until it has checked the node, no pod is placed there.
type nodeTaint struct{}

// Handles implements admission.Interface.
func (nodeTaint) Handles(operation admission.Operation) bool { return operation == admission.Create }

// Admit implements admission.MutationInterface.
func (nodeTaint) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	node, ok := a.GetObject().(*corev1.Node)
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}
