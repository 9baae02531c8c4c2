package preview

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Question is a deletion that a user wants to preview.
type Question struct {
	Requests []Request
	Now      time.Time
	// Order is the order in which the contents of namespaces are deleted.
	Order namespaces.Order
	// AssumeReleased assumes that controllers remove all finalizers.
	AssumeReleased bool
}

// Details reads the facts that metadata does not have.
type Details interface {
	finalizerowner.Details
	// IsLost reports whether a node exists and does not answer.
	IsLost(node string) bool
	// RepeatedReplaces reports whether a repeated DELETE replaces the policy, which is true unless the API server is
	// ours (R19).
	RepeatedReplaces() bool
	// Volume returns a PersistentVolume, and the claim with the name in its claimRef; the claim is nil if there is
	// none.
	Volume(name string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error)
	// Budgets returns the PodDisruptionBudgets of a namespace, or of all namespaces if it is empty.
	Budgets(namespace string) ([]policyv1.PodDisruptionBudget, error)
}

// Protections are Details that know how the server protects objects (R28).
type Protections interface {
	Protection(o *inventory.Object) (protection.Protection, []protection.Left, bool)
}

// Predict predicts the effects of the requests, with the controllers of the finalizers that objects wait for, and
// the PodDisruptionBudgets that the deletion exceeds.
func Predict(inv *inventory.Inventory, details Details, q Question) Prediction {
	serving := finalizerowner.New(inv, details, q.Now)
	options := Options{
		Now: q.Now, Order: q.Order, Lost: details.IsLost, Volume: details.Volume, RepeatedReplaces: details.RepeatedReplaces,
		Released: func(o *inventory.Object, finalizer string) bool {
			return q.AssumeReleased || finalizer == batchv1.JobTrackingFinalizer && isTracked(o, serving)
		},
	}
	if d, ok := details.(Protections); ok {
		options.Protection = d.Protection
	}
	p := New(inv).Predict(q.Requests, options)
	p.SayWhoServes(serving.Of)
	p.SayBudgets(inv, details.Budgets)
	return p
}

// isTracked reports whether a pod soon loses the finalizer by which the Job controller counts pods: true unless that
// controller is known to fail.
func isTracked(o *inventory.Object, serving *finalizerowner.Index) bool {
	return o.Kind == ownership.Kind{Kind: "Pod"} && !serving.Of(o, batchv1.JobTrackingFinalizer).State.Fails()
}
