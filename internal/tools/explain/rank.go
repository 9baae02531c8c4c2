package explain

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Group is a leaf and all objects that are being deleted and wait for it, the oldest first. Its JSON form is an item
// of the output of coppice explain --all.
type Group struct {
	Leaf    Wait  `json:"leaf"`
	Objects []Ref `json:"objects"`
	// More is the number of further objects that wait for it.
	More int `json:"more,omitempty"`
}

// All explains every object that is being deleted, grouped by the leaves of its waits, all of them: the stuck ones
// first, and among these the oldest ones. The leaf of a group is the oldest of those with the same reason. Objects that
// wait for each other have one leaf together. The time is proportional to the number of objects, of waits and of
// objects in groups.
func (e *Explainer) All() []Group {
	waits := e.waitsOf(e.oldestFirst())
	all := make([]Group, 0, len(waits.causes))
	for n := range waits.causes {
		g := Group{Leaf: waits.causes[n].leaf}
		g.Leaf.boundTexts()
		for _, o := range waits.waitingFor(n) {
			g.add(refOf(o))
		}
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(a.Leaf.State.rank()-b.Leaf.State.rank(), compareTimes(a.Leaf.Since, b.Leaf.Since), strings.Compare(reasonOf(&a.Leaf), reasonOf(&b.Leaf)))
	})
	return all
}

func (g *Group) add(o Ref) {
	if len(g.Objects) == mostObjects {
		g.More++
		return
	}
	g.Objects = append(g.Objects, boundedRef(o))
}

// oldestFirst returns the objects that are being deleted, the first deletion first.
func (e *Explainer) oldestFirst() []*inventory.Object {
	var objects []*inventory.Object
	for _, o := range e.Inventory.Objects {
		if o.Phase != ownership.Active {
			objects = append(objects, o)
		}
	}
	slices.SortStableFunc(objects, func(a, b *inventory.Object) int { return requested(a).Compare(requested(b)) })
	return objects
}

// reasonOf identifies the reason of a leaf, so that waits for the same reason are reported once.
func reasonOf(w *Wait) string {
	key := []string{string(w.On), string(w.State), w.Finalizer}
	switch {
	case w.ServedBy != nil:
		key = append(key, w.ServedBy.Controller, string(w.ServedBy.State))
	case w.Object != nil:
		key = append(key, w.Object.String())
	case w.On != OnGracePeriod && w.On != OnServer:
		key = append(key, w.Says)
	}
	return strings.Join(key, "\x00")
}
