// Package cascade decides when a deletion is over as a whole: the requested objects are gone, and so are the objects
// that go because of them, which are their dependents, the contents of their namespaces and the instances of their
// definitions.
//
//	c := cascade.New()
//	err := c.Find(inv, selectors)           // once: the requested objects, and their dependents
//	uids := c.Underway(inv)                 // preview.Continue predicts how they end
//	part := c.Divide(inv, prediction)       // who goes, and who stays
//	report := c.Conclude(inv, part, causes, now) // causes are explain.Groups of the objects that go
//
// Package answer has this sequence, with the facts that the two predictions need. The caller observes the cluster again
// until the report is final: the cascade is gone, or it is proved that it does not end by itself. Nothing is left if two
// observations in a row have found nothing, since one reads the kinds one after the other.
//
// An object belongs to the cascade by its UID. Another one with the same name does not count. The members that are gone
// are kept, because their dependents name them; the number of bytes is bounded (bound.go).
package cascade

import (
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Cascade is a deletion that is observed until it is over. It is not safe for concurrent use.
type Cascade struct {
	named   []*named
	roots   []explain.Ref
	further int // roots that are not in roots
	members members
	stays   map[ownership.UID]Stay
	more    int // objects that stay, and are not in stays

	stuck map[string]time.Time // since when a cause is stuck, by its outline

	empty  int             // the number of the last observations that have found nothing
	unread map[string]bool // at the first observation; nil before
}

// named is an object that a user has named.
type named struct {
	ref  explain.Ref
	here ownership.UID // the object that has the name; empty if none has
	// past is true if earlier objects of that name are known.
	past bool
}

// New returns a cascade without objects.
func New() *Cascade {
	return &Cascade{stays: map[ownership.UID]Stay{}, stuck: map[string]time.Time{}}
}

// AddRoot adds a requested object.
func (c *Cascade) AddRoot(o explain.Ref) {
	switch {
	case slices.Contains(c.roots, bounded(o)):
	case len(c.roots) < mostRoots:
		c.roots = append(c.roots, bounded(o))
	case !c.members.has(o.UID):
		c.further++
	}
	c.Add(o.UID)
}

// Add adds an object that goes with the roots, or is gone.
func (c *Cascade) Add(uid ownership.UID) { c.members.add(uid) }

// AddStay adds an object that stays by rule, if it is still there.
func (c *Cascade) AddStay(s Stay) { c.stay(s) }

// Untraced returns the named objects that do not exist or are not being deleted: a collector may have observed earlier
// ones. Those that exist have their UID.
func (c *Cascade) Untraced(inv *inventory.Inventory) []explain.Ref {
	var untraced []explain.Ref
	for _, n := range c.named {
		if o := inv.Object(n.here); o == nil || o.Phase == ownership.Active {
			ref := n.ref
			ref.UID = n.here
			untraced = append(untraced, ref)
		}
	}
	return untraced
}

// AddEarlier adds an earlier object of a name.
func (c *Cascade) AddEarlier(name explain.Ref, uid ownership.UID) {
	name.UID = ""
	for _, n := range c.named {
		if n.ref == name {
			n.past = true
			name.UID = uid
			c.AddRoot(name)
			return
		}
	}
}

// Find finds the objects that a user has named: the object that has the name, and the earlier ones, by the dependents
// that still name them as an owner. It is for the first observation: an object that gets a name later does not count.
func (c *Cascade) Find(inv *inventory.Inventory, selectors []inventory.Selector) error {
	c.named = nil
	for _, s := range selectors {
		for _, name := range s.Names {
			n := &named{ref: explain.Ref{Kind: s.Resource.OwnerKind().String(), Namespace: s.Namespace, Name: name}}
			one := inventory.Selector{Resource: s.Resource, Namespace: s.Namespace, Names: []string{name}}
			if o := inv.Named(s.Resource, s.Namespace, name); o != nil {
				n.here = o.UID
			} else if !inv.Complete(s.Resource, s.Namespace) {
				_, err := inv.Select(one)
				return err
			}
			c.named = append(c.named, n)
			for _, uid := range formerly(inv, &one) {
				c.AddEarlier(n.ref, uid)
			}
		}
	}
	return nil
}

// formerly returns the UIDs of objects that had a name and are gone, as far as dependents name them.
func formerly(inv *inventory.Inventory, s *inventory.Selector) []ownership.UID {
	var uids []ownership.UID
	for _, o := range inv.Objects {
		for _, r := range o.Owners {
			isNamed := r.OwnerKind() == s.Resource.OwnerKind() && r.Name == s.Names[0] && (s.Namespace == "" || s.Namespace == o.Namespace)
			if isNamed && inv.Object(r.UID) == nil && !slices.Contains(uids, r.UID) {
				uids = append(uids, r.UID)
			}
		}
	}
	return uids
}

// Underway returns the objects of the cascade that exist, and those that name one of its objects as an owner. Computed
// objects, such as a ComponentStatus, have no UID, and belong to none.
func (c *Cascade) Underway(inv *inventory.Inventory) []ownership.UID {
	var uids []ownership.UID
	for _, o := range inv.Objects {
		isNamed := slices.ContainsFunc(c.named, func(n *named) bool { return n.here != "" && n.here == o.UID })
		if isNamed || c.members.has(o.UID) || slices.ContainsFunc(o.Owners, func(r ownership.Reference) bool { return c.members.has(r.UID) }) {
			uids = append(uids, o.UID)
		}
	}
	return uids
}
