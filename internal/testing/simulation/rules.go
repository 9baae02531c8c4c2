package simulation

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// This file states the rules R1 to R14 again, over the current objects of the server: all objects
// are known here, so no claim has to be verified.

// phaseOf returns the phase of an object. It shares no code with ownership.PhaseOf, which the
// collector uses. If an object carries both finalizers, orphan wins (TR-04).
func phaseOf(v *version) ownership.Phase {
	switch {
	case !v.deleting:
		return ownership.Active
	case slices.Contains(v.Finalizers, metav1.FinalizerOrphanDependents):
		return ownership.Orphaning
	case slices.Contains(v.Finalizers, metav1.FinalizerDeleteDependents):
		return ownership.Foreground
	default:
		return ownership.Terminating
	}
}

// blocks reports whether a reference holds a foreground deletion of its owner. Like phaseOf it
// states the rule a second time.
func blocks(r ownership.Reference) bool { return r.BlockOwnerDeletion == ownership.True }

// stand classifies an owner reference (R7).
type stand int

const (
	dangling stand = iota
	solid
	waiting
	unserved  // its kind was not served, so its owner is not known
	misplaced // a cluster-scoped object names a namespaced owner (R5)
)

// owner finds the object that a reference of d names, and classifies the reference.
func (s *apiServer) owner(d *version, r ownership.Reference) (*version, stand) {
	resource := s.resource(r.OwnerKind())
	ref := client.Ref{Kind: r.OwnerKind(), Namespace: d.Namespace, Name: r.Name}
	switch {
	case !resource.served:
		return nil, unserved
	case resource.scope == ownership.Cluster:
		ref.Namespace = ""
	case d.Namespace == "":
		return nil, misplaced
	}
	owner := s.lookup(ref)
	switch {
	case owner == nil || owner.UID != r.UID:
		return nil, dangling
	case owner.Phase == ownership.Foreground:
		return owner, waiting
	default:
		return owner, solid
	}
}

// names reports whether a version of d refers to an owner with correct coordinates.
func (s *apiServer) names(d *version, owner *version, is func(ownership.Reference) bool) bool {
	return slices.ContainsFunc(d.Owners, func(r ownership.Reference) bool {
		resource := s.resource(r.OwnerKind())
		return r.UID == owner.UID && r.OwnerKind() == owner.Kind && r.Name == owner.Name && is(r) &&
			(resource.scope == ownership.Cluster || d.Namespace == owner.Namespace)
	})
}

// namesUID reports whether a version of d refers to the UID of an owner so that it would be collected once the owner is
// gone, although it stays while the owner is there: with correct coordinates, or under a kind that nobody can look up.
func (s *apiServer) namesUID(d *version, owner *version, is func(ownership.Reference) bool) bool {
	if s.names(d, owner, is) {
		return true
	}
	return slices.ContainsFunc(d.Owners, func(r ownership.Reference) bool {
		return r.UID == owner.UID && is(r) && s.resource(r.OwnerKind()).scope == ownership.ScopeUnknown &&
			(owner.Namespace == "" || d.Namespace == owner.Namespace)
	})
}

func anyReference(ownership.Reference) bool { return true }

// dependents returns the objects that refer to an owner with correct coordinates, except the
// owner itself.
func (s *apiServer) dependents(owner *version, is func(ownership.Reference) bool) []*version {
	return s.referring(owner, func(d *version) bool { return s.names(d, owner, is) })
}

// referring returns the objects for which refers is true, except the owner itself.
func (s *apiServer) referring(owner *version, refers func(d *version) bool) []*version {
	var found []*version
	for _, d := range s.standing() {
		if d.life != owner.life && refers(d) {
			found = append(found, d)
		}
	}
	return found
}

// blockedBy returns the owners in foreground deletion that an object blocks.
func (s *apiServer) blockedBy(d *version) []*version {
	var owners []*version
	for _, r := range d.Owners {
		if owner, stand := s.owner(d, r); blocks(r) && stand == waiting {
			owners = append(owners, owner)
		}
	}
	return owners
}

// reaches reports whether there is a path of blocking references from one object to another,
// through objects in foreground deletion only.
func (s *apiServer) reaches(from, to *version) bool {
	seen := map[*version]bool{}
	var visit func(v *version) bool
	visit = func(v *version) bool {
		if v.Phase != ownership.Foreground || seen[v] {
			return false
		}
		seen[v] = true
		for _, owner := range s.blockedBy(v) {
			if owner.life == to.life || visit(owner) {
				return true
			}
		}
		return false
	}
	return visit(from)
}

// hasMisplaced reports whether an active object names an owner that it cannot have (R5).
func (s *apiServer) hasMisplaced(o *version) bool {
	return !o.deleting && slices.ContainsFunc(o.Owners, func(r ownership.Reference) bool {
		_, stand := s.owner(o, r)
		return stand == misplaced
	})
}

// undone returns the action on an object that the collector still has to take, or "".
func (s *apiServer) undone(o *version) string {
	switch o.Phase {
	case ownership.Terminating:
		return "" // R8
	case ownership.Orphaning:
		return "its finalizer orphan is there for ever (R13)"
	case ownership.Foreground:
		switch {
		case s.reaches(o, o):
			return "it is part of a cycle that blocks itself (R10)"
		case len(s.dependents(o, blocks)) == 0:
			return "nothing blocks it, and its finalizer foregroundDeletion is there for ever (R14)"
		}
		return ""
	case ownership.Active:
	}
	count := map[stand]int{}
	for _, r := range o.Owners {
		_, stand := s.owner(o, r)
		count[stand]++
	}
	switch {
	case len(o.Owners) == 0, count[misplaced] > 0, o.Namespace == "" && count[unserved] > 0:
		return "" // R8, R5; the scope of an unserved kind may be known or not
	case count[solid] > 0 && count[dangling]+count[waiting] > 0:
		return "it has a solid owner, and is not detached from the others (R9)"
	case count[solid] > 0, count[unserved] > 0:
		return "" // R9, R7
	default:
		return "all its owners are gone or wait for it, and it is not deleted (R10, R11)"
	}
}
