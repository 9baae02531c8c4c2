// Package answer answers questions about deletions: it predicts the effects of a deletion, explains why objects still
// exist, and finds errors in owner references and finalizers. The command line and the HTTP API share it.
//
// The main flow: a Cluster has the inventory that a question needs, read by a command or taken from a running
// collector. The packages preview, explain and audit decide from it without I/O. A decision may need facts beyond
// metadata, and the facts may raise further needs: decide in rounds.go asks, reads and decides again, until nothing is
// needed.
package answer

import (
	"context"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Cluster is a cluster, or the part of it that a question about some objects concerns.
type Cluster struct {
	Inventory *inventory.Inventory
	// Facts reads the facts beyond metadata.
	Facts FactReader
	// Before is an inventory that was read earlier; it may be nil.
	Before *inventory.Inventory
	// Collector is the state of the collector; nil if no collector has answered.
	Collector *explain.Collector
	// Judge evaluates policies and webhooks; nil: those that match count as undecided.
	Judge preview.Judge
	// Order is the order in which the contents of namespaces are deleted.
	Order namespaces.Order
	// Now is the time of the question.
	Now time.Time
}

// Preview predicts the effects of DELETEs. With assumeReleased, controllers are assumed to remove all finalizers.
func (c *Cluster) Preview(ctx context.Context, requests []preview.Request, assumeReleased bool) preview.Prediction {
	facts := inventory.NewFacts()
	predictor := preview.NewPredictor(c.Inventory, facts, preview.Question{
		Requests: requests, Now: c.Now, Order: c.Order, AssumeReleased: assumeReleased, Judge: c.Judge, Collected: c.Collector != nil,
	})
	return decide(ctx, c.Facts, facts, predictor.Predict)
}

// DeletionsIn does the same for a namespace and the objects in it.
func (c *Cluster) DeletionsIn(ctx context.Context, namespace string) []explain.Group {
	facts, explainer := c.explainer()
	return decide(ctx, c.Facts, facts, func() []explain.Group { return explainer.AllIn(namespace) })
}

// Cascade observes a deletion that has begun.
func (c *Cluster) Cascade(ctx context.Context, of *cascade.Cascade) (cascade.Report, cascade.Part) {
	facts := inventory.NewFacts()
	predictor := preview.NewPredictor(c.Inventory, facts, preview.Question{
		Underway: of.Underway(c.Inventory), Now: c.Now, Order: c.Order, AssumeReleased: true, Judge: c.Judge,
	})
	part := of.Divide(c.Inventory, decide(ctx, c.Facts, facts, predictor.Predict))
	explainer := explain.New(c.input(facts))
	causes := decide(ctx, c.Facts, facts, func() []explain.Group { return explainer.Groups(part.Going) })
	return of.Conclude(c.Inventory, part, causes, c.Now), part
}

// Explain calls visit with the explanation of each object, in their order, and ends at its first error. Objects that
// the inventory does not have are left out.
func (c *Cluster) Explain(ctx context.Context, uids []ownership.UID, visit func(explain.Explanation) error) error {
	facts, explainer := c.explainer()
	for _, uid := range uids {
		if c.Inventory.Object(uid) == nil {
			continue
		}
		explanation := decide(ctx, c.Facts, facts, func() explain.Explanation {
			x, _ := explainer.Explain(uid)
			return x
		})
		if err := visit(explanation); err != nil {
			return err
		}
	}
	return nil
}

// Deletions explains all objects that are being deleted, grouped by cause.
func (c *Cluster) Deletions(ctx context.Context) []explain.Group {
	facts, explainer := c.explainer()
	return decide(ctx, c.Facts, facts, explainer.All)
}

func (c *Cluster) explainer() (*inventory.Facts, *explain.Explainer) {
	facts := inventory.NewFacts()
	return facts, explain.New(c.input(facts))
}

func (c *Cluster) input(facts *inventory.Facts) explain.Input {
	return explain.Input{Inventory: c.Inventory, Before: c.Before, Facts: facts, Collector: c.Collector, Judge: c.Judge, Now: c.Now}
}

// Audit finds errors in the ownership and the deletions, with the controllers of finalizers and their permissions.
func (c *Cluster) Audit(ctx context.Context, o audit.Options) audit.Report {
	facts := inventory.NewFacts()
	o.ServedBy = finalizerowner.New(c.Inventory, facts, c.Now)
	o.Permits = finalizerowner.NewPermissions(o.ServedBy)
	return decide(ctx, c.Facts, facts, func() audit.Report { return audit.Check(c.Inventory, o) })
}
