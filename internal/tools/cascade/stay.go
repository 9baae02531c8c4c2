package cascade

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Stay is an object that stays by rule although an owner goes.
type Stay struct {
	explain.Ref

	Why string `json:"why"`
}

// stayOf returns why an object stays.
func stayOf(inv *inventory.Inventory, o *preview.Outcome) Stay {
	s := Stay{Ref: refOf(o.Object)}
	switch {
	case o.Protected != "":
		s.Why = o.Protected
	case len(o.KeptBy) > 0:
		s.Why = "owned by " + nameOf(inv, o.KeptBy[0])
	case len(o.Lost) > 0:
		s.Why = "orphaned"
	default:
		s.Why = "nothing has asked for it"
	}
	return s
}

// StaysOf returns the objects that stay according to the preview of a deletion.
func StaysOf(r preview.Report) []Stay {
	var stays []Stay
	for n := range r.Objects {
		o := &r.Objects[n]
		if o.Fate != preview.Kept && o.Fate != preview.Detached || o.Refusal != nil {
			continue
		}
		s := Stay{Ref: explain.Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: ownership.UID(o.UID)}, Why: "orphaned"}
		switch {
		case o.Protected != "":
			s.Why = o.Protected
		case len(o.KeptBy) > 0:
			s.Why = "owned by " + o.KeptBy[0]
		}
		stays = append(stays, s)
	}
	return stays
}

func refOf(o *inventory.Object) explain.Ref {
	return explain.Ref{Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

func nameOf(inv *inventory.Inventory, uid ownership.UID) string {
	if o := inv.Object(uid); o != nil {
		return refOf(o).String()
	}
	return string(uid)
}

// stay keeps an object that stays.
func (c *Cascade) stay(s Stay) {
	if _, known := c.stays[s.UID]; !known && len(c.stays) >= mostStays {
		c.more++
		return
	}
	c.stays[s.UID] = Stay{Ref: bounded(s.Ref), Why: ownership.Excerpt(s.Why, mostText)}
}

// updateStays keeps the objects that stay as of now, and those that stayed before and still exist. An object that stays
// is no member any more.
func (c *Cascade) updateStays(inv *inventory.Inventory, stays map[ownership.UID]Stay) {
	c.more = 0
	for uid := range c.stays {
		if inv.Object(uid) == nil {
			delete(c.stays, uid)
		}
	}
	for _, s := range sorted(stays) {
		c.members.remove(s.UID)
		c.stay(s)
	}
}

func sorted(stays map[ownership.UID]Stay) []Stay {
	return slices.SortedFunc(maps.Values(stays), func(a, b Stay) int {
		return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.UID, b.UID))
	})
}
