package preview

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// isCertain reports whether every schedule ends like this play, so that no other schedule is needed. It is true only
// for background deletions of unprotected objects with correct owner references.
//
// The reason: in such a deletion, an object can only be marked, lose finalizers after the mark, be removed, and lose
// references to absent owners while another owner stays. Each of these steps requires of other objects only that they
// are marked or removed, which never ends: the collector deletes an object when all its owners are gone; the
// namespace controller deletes the next stage when the earlier stages are empty, and releases the namespace when all
// are; a volume is free when its users are gone; a node, or the controller of a finalizer, releases a marked object,
// or never does. So a possible step stays possible until it is taken. Suppose that another schedule took steps that
// this play did not. The first of them was possible there after steps that this play took, too; so it is possible
// here, although this play has settled: a contradiction. For the same reason, the other schedule misses none of the
// steps of this play.
//
// Two cases have to be excluded. An object with several owners that is marked before one of them is gone keeps the
// reference to that owner (R8), and otherwise loses it (R9); if the object is removed, both are the same. So does one
// that the server refuses to delete when the last of its owners is gone. And an
// object that was being deleted before may be removed in one schedule, and never be considered in another.
func (p *play) isCertain(requests []Request) bool {
	if slices.ContainsFunc(requests, func(r Request) bool { return !p.isBackground(r) }) {
		return false
	}
	isRequested := make(map[ownership.UID]bool, len(requests))
	for _, r := range requests {
		isRequested[r.UID] = true
	}
	seen := make(map[*inventory.Object]bool, len(p.objects))
	for _, o := range p.loaded {
		if (o.deleting || o.refusal != nil) && !o.removed && len(o.Owners) > 1 || !p.isPlain(o.Object, seen) {
			return false
		}
	}
	for o := range seen {
		if o.Phase != ownership.Active && !p.isReached(o, isRequested) {
			return false
		}
	}
	return true
}

// isBackground reports whether a request deletes in the background: it names that policy, or no policy, and the kind of the
// object has no other default (R17). Objects whose finalizers state another policy are not plain.
func (p *play) isBackground(r Request) bool {
	policy := r.Propagation
	if o := p.inventory.Object(r.UID); policy == "" && o != nil {
		policy = builtin.StrategyOf(o.Resource.GroupResource()).DefaultPropagation
	}
	return cmp.Or(policy, metav1.DeletePropagationBackground) == metav1.DeletePropagationBackground
}

// isReached reports whether every schedule processes an object that was being deleted before, and does not only read
// it as an owner: a request names the object, an owner that was not being deleted, or the namespace.
func (p *play) isReached(o *inventory.Object, isRequested map[ownership.UID]bool) bool {
	if isRequested[o.UID] || slices.ContainsFunc(o.Owners, func(r ownership.Reference) bool {
		return isRequested[r.UID] && p.objects[r.UID].Phase == ownership.Active
	}) {
		return true
	}
	namespaces := p.inventory.Resource(ownership.Kind{Kind: "Namespace"})
	if namespaces == nil || o.Namespace == "" {
		return false
	}
	ns := p.inventory.Named(namespaces, "", o.Namespace)
	return ns != nil && isRequested[ns.UID] && p.objects[ns.UID].contentsLoaded
}

// isPlain reports whether an object is unprotected and has no finalizer of a foreground or orphan deletion, and
// whether all its owners exist, match their references, and are plain, too. seen are the objects that are checked
// already.
func (p *play) isPlain(o *inventory.Object, seen map[*inventory.Object]bool) bool {
	if seen[o] {
		return true // or its check is under way: owners may form a cycle
	}
	seen[o] = true
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

// isOwnerOf reports whether the reference of a dependent matches the owner (R5, R6).
func isOwnerOf(owner, dependent *inventory.Object, r ownership.Reference) bool {
	return owner.Kind == r.OwnerKind() && owner.Name == r.Name && (owner.Namespace == "" || owner.Namespace == dependent.Namespace)
}
