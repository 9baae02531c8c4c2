package preview

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Question is a deletion that a user wants to preview.
type Question struct {
	Requests []Request
	// Underway are objects whose deletion has begun. With these, the question has no Requests.
	Underway []ownership.UID
	Now      time.Time
	// Order is the order in which the contents of namespaces are deleted.
	Order namespaces.Order
	// Judge evaluates the policies and webhooks that match. Nil: all of them count as undecided.
	Judge Judge
	// Collected is true if a collector of Coppice answers: there is one in the cluster, whatever its server.
	Collected bool
	// AssumeReleased assumes that controllers remove all finalizers.
	AssumeReleased bool
}

// Predictor predicts the effects of the requests of a question from facts. It is not safe for concurrent use.
type Predictor struct {
	question  Question
	cluster   *Cluster
	inventory *inventory.Inventory
	facts     *inventory.Facts
	owners    *finalizerowner.Index

	judgements  map[judged]Judgement
	matches     map[matchKey]Review
	definitions map[*inventory.Resource]*inventory.Object // nil for a resource without one
	// unreadAdmission says that policies or webhooks could not be read, if a write needed them, and why.
	unreadAdmission string
	played          *Prediction // nil until the simulation has had all its facts
}

// NewPredictor indexes an inventory for a question.
func NewPredictor(inv *inventory.Inventory, facts *inventory.Facts, q Question) *Predictor {
	return &Predictor{
		question: q, cluster: New(inv), inventory: inv, facts: facts, owners: finalizerowner.New(inv, facts, q.Now),
		judgements: map[judged]Judgement{}, matches: map[matchKey]Review{}, definitions: map[*inventory.Resource]*inventory.Object{},
	}
}

// Predict predicts the effects of the requests, with the controllers of the finalizers that objects wait for, and the
// PodDisruptionBudgets that the deletion exceeds. The prediction is preliminary while the facts have needs; it may be
// empty then.
func (p *Predictor) Predict() Prediction {
	misses := p.facts.Misses()
	if p.played == nil {
		if p.foresee(); p.facts.Misses() > misses {
			return Prediction{}
		}
		played := p.play(p.options(misses))
		if p.facts.Misses() > misses {
			return played
		}
		played.UnreadAdmission = p.unreadAdmission
		p.played = &played
	}
	result := *p.played
	result.AddOwners(p.owners.Of)
	result.AddBudgets(p.inventory, p.facts.BudgetsOf)
	return result
}

func (p *Predictor) play(o Options) Prediction {
	if len(p.question.Underway) > 0 {
		return p.cluster.Continue(p.question.Underway, o)
	}
	return p.cluster.Predict(p.question.Requests, o)
}

// options returns the facts as assumptions of the simulation. misses are those at its beginning.
func (p *Predictor) options(misses int) Options {
	return Options{
		Now: p.question.Now, Order: p.question.Order, Volume: p.facts.Volume, Class: p.facts.UsersOfClass, RepeatedReplaces: p.facts.Replaces,
		Released: func(o *inventory.Object, finalizer string) bool {
			return p.question.AssumeReleased || finalizer == batchv1.JobTrackingFinalizer && p.isTracked(o)
		},
		Node: func(name string) builtin.NodeState {
			if node := p.facts.Node(name); node.Unread == "" {
				return node.Value.NodeState
			}
			return builtin.NodeState{Exists: true, Ready: true}
		},
		Protection:    p.facts.Protection,
		Tokens:        func(namespace string) []inventory.Token { return p.facts.TokensIn(namespace).Value },
		Follows:       func() bool { return !p.facts.IsOurs() || p.facts.RunControllers() },
		Admission:     p.admission,
		Conversion:    p.conversion,
		Holds:         p.holds,
		IsPreliminary: func() bool { return p.facts.Misses() > misses },
	}
}

// isTracked reports whether a pod soon loses the finalizer by which the Job controller counts pods: true unless that
// controller is known to fail.
func (p *Predictor) isTracked(o *inventory.Object) bool {
	return o.Kind == ownership.Kind{Kind: "Pod"} && !p.owners.Of(o, batchv1.JobTrackingFinalizer).State.Fails()
}
