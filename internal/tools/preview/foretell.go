package preview

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/servedby"
)

// Question is what a user asks.
type Question struct {
	Requests []Request
	Now      time.Time
	// Order is the order in which the contents of namespaces are deleted.
	Order namespaces.Order
	// AssumeReleased takes all finalizers to be removed by their controllers.
	AssumeReleased bool
}

// Details reads what more than metadata is needed.
type Details interface {
	servedby.Details
	// IsLost reports whether a node is there and does not answer.
	IsLost(node string) bool
	// RepeatedReplaces reports whether a repeated DELETE replaces the policy: whether the API server is not ours (R19).
	RepeatedReplaces() bool
	// Volume returns a PersistentVolume, and the claim of the name in its claimRef, nil if there is none.
	Volume(name string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim, error)
	// Budgets returns the PodDisruptionBudgets of a namespace, or of all if that is empty.
	Budgets(namespace string) ([]policyv1.PodDisruptionBudget, error)
}

// Protections are details that know how the server protects objects (R28).
type Protections interface {
	Protection(o *inventory.Object) (protection.Protection, []protection.Left, bool)
}

// Foretell predicts what the requests do, and says who serves the finalizers that are waited for, and which
// PodDisruptionBudgets are exceeded.
func Foretell(inv *inventory.Inventory, details Details, q Question) Prediction {
	serving := servedby.New(inv, details, q.Now)
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

// isTracked reports whether the finalizer by which the Job controller counts pods goes as soon as it has:
// no pod waits for it for long, unless the controller is known not to work.
func isTracked(o *inventory.Object, serving *servedby.Index) bool {
	return o.Kind == ownership.Kind{Kind: "Pod"} && !serving.Of(o, batchv1.JobTrackingFinalizer).State.Fails()
}
