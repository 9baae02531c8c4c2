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
func (e *Explainer) All() []Group { return e.grouped(e.oldestFirst()) }

// AllIn explains as All does, but only the objects in a namespace and the namespace itself.
func (e *Explainer) AllIn(namespace string) []Group {
	return e.grouped(slices.DeleteFunc(e.oldestFirst(), func(o *inventory.Object) bool { return !isIn(o, namespace) }))
}

// isIn reports whether an object is in a namespace, or is that namespace.
func isIn(o *inventory.Object, namespace string) bool {
	return o.Namespace == namespace || o.Name == namespace && o.Kind == (ownership.Kind{Kind: "Namespace"})
}

// Groups explains some objects, whether or not they are being deleted yet, as All does. It leaves out objects that wait
// for nothing.
func (e *Explainer) Groups(uids []ownership.UID) []Group {
	objects := make([]*inventory.Object, 0, len(uids))
	for _, uid := range uids {
		if o := e.Inventory.Object(uid); o != nil {
			objects = append(objects, o)
		}
	}
	return e.grouped(objects)
}

func (e *Explainer) grouped(objects []*inventory.Object) []Group {
	waits := e.waitsOf(objects)
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
