package verdict

import (
	"cmp"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Standing classifies an owner reference.
type Standing uint8

const (
	// Unverified references: nothing is known of the claim, and a live read can verify it (R7).
	Unverified Standing = iota
	// Solid references: the owner is Present and not in foreground deletion (R7). An owner
	// that terminates in another way counts too: it may yet orphan its dependents.
	Solid
	// Waiting references: the owner is Present and in foreground deletion (R7).
	Waiting
	// Dangling references: the owner is Absent, with evidence (R7, R3).
	Dangling
	// Unmapped references: nothing is known, and no API serves the kind (R7).
	Unmapped
	// Misplaced references: a cluster-scoped object names a namespaced owner (R5).
	Misplaced
)

// Owner is an owner reference of the object of the decision.
type Owner struct {
	Reference ownership.Reference
	Claim     ownership.Claim
	Standing  Standing
	// Stale is true if the owner was observed in an earlier epoch, and not since (R4).
	Stale bool
	// Evidence is the basis of the standing. No decision depends on it: it is for records and the
	// audit log, which show why an object was deleted.
	Evidence ownership.Evidence
	// InCycle is true if object and owner, both in foreground deletion, are part of one cycle of
	// blocking references (R10).
	InCycle bool
}

func (s Standing) String() string {
	switch s {
	case Solid:
		return "solid"
	case Waiting:
		return "waiting"
	case Dangling:
		return "dangling"
	case Unmapped:
		return "unmapped"
	case Misplaced:
		return "misplaced"
	default:
		return "unverified"
	}
}

// Report is an owner reference that is reported to the user, whatever the decision (R5, the
// Event OwnerRefInvalidNamespace).
type Report struct {
	Reference ownership.Reference
	// OwnerNamespace is the namespace in which the owner was observed; empty if it was not.
	OwnerNamespace string
	// Why is the explanation in the Event.
	Why string
}

// Facts holds everything that a decision about one object depends on.
type Facts struct {
	Object  ownership.Object
	Owners  []Owner // one for each reference, in the stored order
	Reports []Report

	// Doubted are objects that were being deleted in an earlier epoch and were not observed
	// since, if the decision would rest on their deletion (R4): the object, its owners, the
	// members of its cycle. Sorted, without duplicates.
	Doubted []ownership.UID
	// HasDependents is true if the object is itself an owner. It is looked up only for an active
	// object with a waiting owner (R10).
	HasDependents bool
	// Dependents are the objects to detach, sorted, without duplicates and without the object; see
	// ownership.Graph.Orphans. They are looked up only in phase Orphaning (R13).
	Dependents []ownership.UID
	// Blocking are dependents that hold the object, sorted, without duplicates, at most
	// MaxBlocking. They are looked up only in phase Foreground (R14).
	Blocking []ownership.UID
	// Doubtful are claims on the object that may turn out to make blocking dependents of their claimants,
	// sorted, without duplicates; see ownership.Graph.Doubtful. They are looked up only in phase Foreground.
	Doubtful []ownership.Claim
	// Unread are objects that may have this one as an owner; the graph does not keep all their references, so the
	// collector reads them live, see Missing. They are looked up only in the phases Orphaning and Foreground.
	Unread []ownership.UID
	// Cycle are the members of the cycle that the object is part of, sorted; only in phase
	// Foreground (R10). It is shared with the graph and must not be changed.
	Cycle []ownership.UID
}

// MaxBlocking bounds Facts.Blocking. An owner in foreground deletion is reconsidered each time
// that one of its ten thousand dependents is gone; the decision needs only whether any is left.
const MaxBlocking = 16

// Gather collects the facts about an object; it returns false if the object is not observed. The facts are not complete
// if Missing returns something.
func Gather(g *ownership.Graph, uid ownership.UID) (Facts, bool) {
	object, ok := g.Object(uid)
	if !ok {
		return Facts{}, false
	}
	return gather(g, object, g.Owners(uid)), true
}

// GatherWhole collects the facts about an object with many owners, of which the graph does not keep all references: whole
// is the result of a live read of it, and answers has the results of live reads of its owners. It returns false if the
// observed object is not the one that was read.
func GatherWhole(g *ownership.Graph, whole ownership.Object, answers map[ownership.Claim]ownership.Answer) (Facts, bool) {
	object, ok := g.Object(whole.UID)
	if !ok || object.ResourceVersion != whole.ResourceVersion || g.Stale(whole.UID) ||
		object.MoreOwners+len(object.Owners) != len(whole.Owners) {
		return Facts{}, false
	}
	object.Owners, object.MoreOwners = whole.Owners, 0
	return gather(g, object, g.OwnersOf(object, answers)), true
}

func gather(g *ownership.Graph, object ownership.Object, owners []ownership.Owner) Facts {
	uid := object.UID
	f := Facts{Object: object}
	waiting := false
	if len(object.Owners) > 0 {
		f.Owners = make([]Owner, 0, len(object.Owners))
	}
	for _, o := range owners {
		standing := standingOf(o)
		waiting = waiting || standing == Waiting
		f.Owners = append(f.Owners, Owner{Reference: o.Reference, Claim: o.Claim, Standing: standing, Stale: o.Stale, Evidence: o.Evidence, InCycle: o.InCycle})
		if why := reportable(o, standing); why != "" {
			f.Reports = append(f.Reports, Report{Reference: o.Reference, OwnerNamespace: o.Elsewhere, Why: why})
		}
	}
	switch object.Phase {
	case ownership.Active:
		f.HasDependents = waiting && g.HasDependents(uid)
	case ownership.Orphaning:
		f.Dependents = orphans(g, uid)
		f.Unread = g.MayDepend(uid)
	case ownership.Foreground:
		f.Cycle = g.Cycle(uid)
		f.Blocking = blocking(g, uid)
		f.Doubtful = sortedClaims(g.Doubtful(uid))
		f.Unread = g.MayDepend(uid)
	case ownership.Terminating:
	}
	f.Doubted = doubted(g, f)
	return f
}

// Missing returns the objects that have to be read live before the decision, sorted: the object itself if the graph does
// not keep all its references and the decision depends on them, else the ones that may be its dependents, if the
// decision would be that it has none. Decide decides nothing before.
func (f Facts) Missing() []ownership.UID {
	switch {
	case len(f.Doubted) > 0:
		return nil // decided without them
	case f.Object.MoreOwners > 0 && (f.Object.Phase == ownership.Active || f.Object.Phase == ownership.Foreground):
		return []ownership.UID{f.Object.UID}
	case len(f.Cycle)+len(f.Blocking)+len(f.Dependents)+len(f.Doubtful) == 0:
		return f.Unread
	default:
		return nil
	}
}

// doubted returns the objects whose deletion has to be confirmed by a live read (R4).
func doubted(g *ownership.Graph, f Facts) []ownership.UID {
	if !g.AnyStale() {
		return nil // without a look at all members of a cycle for each of them
	}
	var uids []ownership.UID
	switch f.Object.Phase {
	case ownership.Terminating:
		return nil // R8
	case ownership.Active:
		for _, o := range f.Owners {
			if o.Standing == Waiting && o.Stale {
				uids = append(uids, o.Reference.UID)
			}
		}
	case ownership.Orphaning, ownership.Foreground:
		uids = append(uids, f.Object.UID)
		uids = append(uids, f.Cycle...)
		uids = slices.DeleteFunc(uids, func(uid ownership.UID) bool { return !g.Stale(uid) })
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// standingOf derives the standing of an owner reference (R7).
func standingOf(o ownership.Owner) Standing {
	switch o.Presence {
	case ownership.Present:
		if o.Phase == ownership.Foreground {
			return Waiting
		}
		return Solid
	case ownership.Absent:
		return Dangling
	case ownership.Unknown:
	}
	switch o.Obstacle {
	case ownership.Unmapped:
		return Unmapped
	case ownership.OutOfScope:
		return Misplaced
	case ownership.Verifiable:
	}
	return Unverified
}

// reportable describes the scope error of a reference; empty if it has none (R5).
func reportable(o ownership.Owner, s Standing) string {
	owner := named(o.Reference)
	switch {
	case s == Misplaced && o.Elsewhere == "":
		return "a cluster-scoped object names an owner of a namespaced kind: " + owner
	case s == Misplaced:
		return "a cluster-scoped object names an owner that lives in namespace " + o.Elsewhere + ": " + owner
	case o.Elsewhere != "":
		return "the owner lives in another namespace, " + o.Elsewhere + ": " + owner
	}
	return ""
}

func orphans(g *ownership.Graph, uid ownership.UID) []ownership.UID {
	var all []ownership.UID
	for dependent := range g.Orphans(uid) {
		if dependent != uid { // its own reference goes with it
			all = append(all, dependent)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func blocking(g *ownership.Graph, uid ownership.UID) []ownership.UID {
	var some []ownership.UID
	for dependent := range g.Blocking(uid) {
		some = append(some, dependent)
		if len(some) == MaxBlocking {
			break
		}
	}
	slices.Sort(some)
	return slices.Compact(some)
}

// sortedClaims sorts claims and removes duplicates.
func sortedClaims(claims []ownership.Claim) []ownership.Claim {
	slices.SortFunc(claims, func(a, b ownership.Claim) int {
		return cmp.Or(compareKinds(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Compact(claims)
}

func compareKinds(a, b ownership.Kind) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
}

// named returns the owner as the reference states it: "ReplicaSet.apps web".
func named(r ownership.Reference) string { return r.OwnerKind().String() + " " + r.Name }
