package preview

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Hold is a group version that does not answer, in which an owner may have dependents.
type Hold struct{ GroupVersion, Why string }

// heldAt returns what holds an owner at the barrier of the collector (R15).
func (p *play) heldAt(o *object, finalizer string) []Hold {
	if p.options.Holds == nil {
		return nil
	}
	return p.options.Holds(o.Object, finalizer)
}

// holds returns what holds an owner at the barrier of the collector, if that is Coppice's: upstream's has none.
func (p *Predictor) holds(o *inventory.Object, finalizer string) []Hold {
	if p.cluster.undiscovered == nil || !p.question.Collected && !p.facts.IsOurs() {
		return nil
	}
	var holds []Hold
	for gv := range p.cluster.undiscovered.Groups {
		if p.hasKinds(gv, o) {
			holds = append(holds, Hold{gv.String(), "its objects cannot be listed"})
			continue
		}
		outage := p.facts.Outage(gv.String()).Value // the zero one, of which nothing is known, if it could not be read
		if outage.Holds(p.createdAt(o, outage), finalizer) {
			holds = append(holds, Hold{gv.String(), outage.Says(gv.String())})
		}
	}
	slices.SortFunc(holds, func(a, b Hold) int { return strings.Compare(a.GroupVersion, b.GroupVersion) })
	return holds
}

// hasKinds reports whether the collector knew a group version before it stopped to answer, with kinds of which an owner
// may have dependents.
func (p *Predictor) hasKinds(gv schema.GroupVersion, o *inventory.Object) bool {
	return slices.ContainsFunc(p.inventory.Resources, func(r *inventory.Resource) bool {
		return r.GroupVersion() == gv && r.Deletable && (r.Namespaced || o.Namespace == "")
	})
}

// createdAt returns the creation of an owner, if it matters: the graph of a collector does not have it.
func (p *Predictor) createdAt(o *inventory.Object, outage apiservice.Outage) (created time.Time) {
	if !o.Created.IsZero() || !outage.IsDated() {
		return o.Created
	}
	if body := p.facts.Body(o).Value; body != nil {
		created = body.GetCreationTimestamp().Time
	}
	return created
}
