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

// All explains every object that is being deleted, grouped by the leaves of its waits: the stuck ones first, and
// among these the oldest ones.
func (e *Explainer) All() []Group {
	groups := map[string]*Group{}
	for _, o := range e.oldestFirst() {
		x, _ := e.whole(o.UID)
		seen := map[string]bool{}
		for _, leaf := range x.Leaves() {
			key := cause(leaf)
			if leaf.State == Kept || seen[key] {
				continue
			}
			seen[key] = true
			if groups[key] == nil {
				groups[key] = &Group{Leaf: *leaf}
				groups[key].Leaf.boundTexts()
			}
			groups[key].add(x.Object)
		}
	}
	all := make([]Group, 0, len(groups))
	for _, g := range groups {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(a.Leaf.State.rank()-b.Leaf.State.rank(), compareTimes(a.Leaf.Since, b.Leaf.Since), strings.Compare(cause(&a.Leaf), cause(&b.Leaf)))
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

// cause identifies the reason of a leaf, so that waits for the same reason are reported once.
func cause(w *Wait) string {
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
