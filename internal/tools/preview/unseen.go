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
	// Resource is the name of the resource, such as roles.rbac.authorization.k8s.io, or the group that does not answer.
	// It is empty for an entry that counts the rest.
	Resource string `json:"resource,omitempty"`
	// Forbidden is true if the user may not list the resource, or the rest.
	Forbidden bool `json:"forbidden,omitempty"`
	// Says names the resource, and the reason why it could not be read.
	Says string `json:"says"`
}

// unseen returns the resources whose objects the inventory may lack, and of which the deletion may remove objects, or owner
// references.
func (p *Prediction) unseen(inv *inventory.Inventory) []UnseenReport {
	var all []UnseenReport
	for _, u := range inv.Unread {
		r := resourceOf(inv, u)
		if r != nil && !r.Deletable || storesNothing(u.Resource.Group) { // its objects exist as long as their server does
			continue
		}
		if !slices.ContainsFunc(p.Outcomes, func(o Outcome) bool { return o.reaches(u, r) }) {
			continue
		}
		one := UnseenReport{Says: text(u.String()), Resource: text(u.Resource.GroupResource().String()), Forbidden: u.Forbidden}
		if u.Resource.Resource == "" {
			one.Resource = text(u.Resource.Group)
		}
		if r != nil {
			one.Kind = r.OwnerKind().String()
		}
		all = append(all, one)
	}
	return boundedUnseen(all)
}

// boundedUnseen bounds the list. Resources that the user may not list come last: one word accepts them all, and the entry
// for the rest is of that sort only if all the rest is.
func boundedUnseen(all []UnseenReport) []UnseenReport {
	more := len(all) - mostUnread
	if more <= 0 {
		return all
	}
	slices.SortStableFunc(all, func(a, b UnseenReport) int {
		switch {
		case a.Forbidden == b.Forbidden:
			return 0
		case b.Forbidden:
			return -1
		}
		return 1
	})
	return append(all[:mostUnread], UnseenReport{Says: fmt.Sprintf("and %d more", more), Forbidden: all[mostUnread].Forbidden})
}

// storesNothing reports whether the objects of a group are measurements, which their server computes for each request. The
// names are Kubernetes' own. Such a server is often down, and its group does not say then that nothing can be deleted.
func storesNothing(group string) bool {
	return group == "metrics.k8s.io" || group == "custom.metrics.k8s.io" || group == "external.metrics.k8s.io"
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
