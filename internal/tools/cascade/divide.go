package cascade

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Part is the part of an inventory that belongs to a cascade.
type Part struct {
	// Going are the objects that go and still exist, sorted.
	Going []ownership.UID
	// Kept are the named objects that are not being deleted.
	Kept []Stay
}

// Divide divides the objects that a prediction concerns into those that go and those that stay.
func (c *Cascade) Divide(inv *inventory.Inventory, p preview.Prediction) Part {
	going := goingOf(inv, p)
	part := Part{}
	stays := map[ownership.UID]Stay{}
	for n := range p.Outcomes {
		o := &p.Outcomes[n]
		uid := o.Object.UID
		if going[uid] {
			part.Going = append(part.Going, uid)
		} else {
			stays[uid] = stayOf(inv, o)
		}
	}
	slices.Sort(part.Going)
	part.Kept = c.settle(going, stays)
	for _, uid := range part.Going {
		c.members.add(uid)
		delete(c.stays, uid)
	}
	c.updateStays(inv, stays)
	return part
}

// goingOf returns the objects of a prediction that go: if their controllers work and the server permits it, or if they
// are deleted with their namespace or their definition. A dependent whose owner waits goes after it.
func goingOf(inv *inventory.Inventory, p preview.Prediction) map[ownership.UID]bool {
	going := map[ownership.UID]bool{}
	for n := range p.Outcomes {
		if o := &p.Outcomes[n]; o.Goes() || isSwept(inv, o.Object) {
			going[o.Object.UID] = true
		}
	}
	for isDone := false; !isDone; {
		isDone = true
		for n := range p.Outcomes {
			o := &p.Outcomes[n]
			if !going[o.Object.UID] && len(o.KeptBy) > 0 && !slices.ContainsFunc(o.KeptBy, func(uid ownership.UID) bool { return !going[uid] }) {
				going[o.Object.UID], isDone = true, false
			}
		}
	}
	return going
}

// isSwept reports whether the namespace of an object, or the definition of its kind, is being deleted.
func isSwept(inv *inventory.Inventory, o *inventory.Object) bool {
	isLeaving := func(kind ownership.Kind, name string) bool {
		r := inv.Resource(kind)
		if r == nil || name == "" {
			return false
		}
		home := inv.Named(r, "", name)
		return home != nil && home.Phase != ownership.Active
	}
	return o.Resource.Deletable && (isLeaving(ownership.Kind{Kind: "Namespace"}, o.Namespace) ||
		isLeaving(ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, o.Resource.GroupResource().String()))
}

// settle decides, once, which objects the names stand for. It returns the objects that are not being deleted, unless
// the name stands for an earlier one.
func (c *Cascade) settle(going map[ownership.UID]bool, stays map[ownership.UID]Stay) []Stay {
	var kept []Stay
	for _, n := range c.named {
		switch here := n.here; {
		case here == "" && n.past:
		case here == "":
			c.AddRoot(n.ref) // it is gone, without a trace
		case going[here]:
			n.ref.UID = here
			c.AddRoot(n.ref)
		case !n.past:
			kept = append(kept, stays[here])
		}
		if n.here != "" {
			delete(stays, n.here)
		}
	}
	c.named = nil
	return kept
}
