package preview

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// isCertain reports whether every schedule ends as this play has ended, so that no other need be played. It says
// so of deletions in the background of what nobody protects, by owner references that are right.
//
// The reason. There, all that ever happens to an object is that it is marked, that it loses finalizers when it is,
// that it goes, and that it loses owners that are gone while another one stays. Whether the next of these steps can
// be taken depends on others only in that they have to be marked or gone, which they stay: the collector deletes
// what has only owners that are gone; the namespace controller deletes what is left when the stages before are empty,
// and lets the namespace go when all are; a volume is free when what uses it is gone; a node, and who serves a
// finalizer, ends what is marked, or never does. So a step that is possible stays possible until it is taken.
// Suppose that another schedule took steps that this one did not. The first of these was possible there after
// steps that were taken here, too; so it is possible here, where everything has come to rest. As little can it
// lack any.
//
// Two things have to be ruled out. What has several owners and is marked before one of them is gone keeps the
// reference to it (R8), and loses it otherwise (R9); if it goes, that is the same. And what was being deleted before
// may come to its end in one schedule, and never be looked at in another.
func (p *play) isCertain(requests []Request) bool {
	if slices.ContainsFunc(requests, func(r Request) bool { return r.Propagation != metav1.DeletePropagationBackground }) {
		return false
	}
	seen := make(map[ownership.UID]bool)
	for _, o := range p.objects {
		if o.deleting && !o.gone && len(o.Owners) > 1 || !p.isPlain(o.Object, seen) {
			return false
		}
	}
	for uid := range seen {
		if o := p.inventory.Object(uid); o.Phase != ownership.Active && !p.isReached(o, requests) {
			return false
		}
	}
	return true
}

// isReached reports whether every schedule comes to an object that was being deleted before, whatever else it does,
// and not only if it looks at it as an owner: it is asked for, or depends on what is, or is in a namespace that is.
func (p *play) isReached(o *inventory.Object, requests []Request) bool {
	isRequested := func(uid ownership.UID) bool {
		return slices.ContainsFunc(requests, func(r Request) bool { return r.UID == uid })
	}
	if isRequested(o.UID) || slices.ContainsFunc(o.Owners, func(r ownership.Reference) bool {
		return isRequested(r.UID) && p.objects[r.UID].Phase == ownership.Active
	}) {
		return true
	}
	namespaces := p.inventory.Resource(ownership.Kind{Kind: "Namespace"})
	if namespaces == nil || o.Namespace == "" {
		return false
	}
	ns := p.inventory.Named(namespaces, "", o.Namespace)
	return ns != nil && isRequested(ns.UID) && p.objects[ns.UID].contentsLoaded
}

// isPlain reports whether an object is neither protected nor has to do with a deletion in the foreground or one
// that orphans, and neither has what it names as its owners. These are there, and are what they are named as.
// seen are objects of which that is known.
func (p *play) isPlain(o *inventory.Object, seen map[ownership.UID]bool) bool {
	if seen[o.UID] {
		return true // or it is being looked at: owners may go in a circle
	}
	seen[o.UID] = true
	isOurs := func(f string) bool { return f == ownership.FinalizerOrphan || f == ownership.FinalizerForeground }
	if o.Protected || slices.ContainsFunc(o.Finalizers, isOurs) {
		return false
	}
	for _, r := range o.Owners {
		owner := p.inventory.Object(r.UID)
		if owner == nil || !isOwnerOf(owner, o, r) || !p.isPlain(owner, seen) {
			return false
		}
	}
	return true
}

// isOwnerOf reports whether a reference of a dependent is right about the owner (R5, R6).
func isOwnerOf(owner, dependent *inventory.Object, r ownership.Reference) bool {
	return owner.Kind == r.OwnerKind() && owner.Name == r.Name && (owner.Namespace == "" || owner.Namespace == dependent.Namespace)
}
