package preview

import (
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// UnseenReport is a resource that could not be read, and of which the deletion may remove objects.
type UnseenReport struct {
	// Kind is the kind of its objects; empty for a group that does not answer.
	Kind string `json:"kind,omitempty"`
	// Says names the resource, and the reason why it could not be read.
	Says string `json:"says"`
}

// unseen returns the resources whose objects the inventory may lack, and of which the deletion may remove objects, or owner
// references.
func (p *Prediction) unseen(inv *inventory.Inventory) []UnseenReport {
	var all []UnseenReport
	for _, u := range inv.Unread {
		r := resourceOf(inv, u)
		if r != nil && !r.Deletable { // its objects exist as long as their server does
			continue
		}
		if !slices.ContainsFunc(p.Outcomes, func(o Outcome) bool { return o.reaches(u, r) }) {
			continue
		}
		one := UnseenReport{Says: text(u.String())}
		if r != nil {
			one.Kind = r.OwnerKind().String()
		}
		all = append(all, one)
	}
	if more := len(all) - mostUnread; more > 0 {
		all = append(all[:mostUnread], UnseenReport{Says: fmt.Sprintf("and %d more", more)})
	}
	return all
}

// resourceOf returns the resource that could not be read; nil for a group that does not answer.
func resourceOf(inv *inventory.Inventory, u inventory.Unread) *inventory.Resource {
	for _, r := range inv.Resources {
		if u.Resource.Resource != "" && r.GroupResource() == u.Resource.GroupResource() {
			return r
		}
	}
	return nil
}

// mayGo reports whether an object is removed, or may be.
func (o *Outcome) mayGo() bool { return o.isDeleted() || o.Race || o.Fate == Unknown }

// reaches reports whether the removal of an object may remove objects that could not be read, of a resource or of a whole
// group: they may be its dependents, or the contents of a namespace. Dependents of a namespaced object are in its
// namespace, those of a cluster-scoped one anywhere (R5). Dependents of a namespace outside of it do not count: a user
// with rights in one namespace could never back it up.
func (o *Outcome) reaches(u inventory.Unread, r *inventory.Resource) bool {
	if !o.mayGo() {
		return false
	}
	namespace := o.Object.Namespace
	if o.Object.Kind == (ownership.Kind{Kind: "Namespace"}) {
		namespace = o.Object.Name
	}
	switch {
	case namespace == "":
		return true
	case r != nil && !r.Namespaced:
		return false
	}
	return u.Namespace == namespace || u.Namespace == "" && !slices.Contains(u.Except, namespace)
}
