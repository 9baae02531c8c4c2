// Package verdict holds the rules of garbage collection: from the facts about one
// object it derives what to do about that object. It does nothing itself; the
// collector applies a decision, with the UID and resourceVersion of
// Facts.Object as preconditions (R12), which leads to the next observation.
//
// The main flow:
//
//	facts, ok := verdict.Gather(graph, uid) // from the ownership graph
//	decision := verdict.Decide(facts)       // the action, with the reason inside
//
// Decide depends on its facts alone. It is called again whenever the graph returns the UID, so no
// decision depends on an earlier one. Its cases are in the order in which they are safe: a
// deletion that has begun is only completed; nothing is written before every verifiable claim is
// verified; and nothing is deleted as long as one owner is solid or cannot be read. Rule
// numbers in comments refer to docs/semantics.md.
package verdict

import (
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Decide returns what to do about an object.
func Decide(f Facts) Decision {
	if len(f.Doubted) > 0 {
		return Reread{Objects: f.Doubted} // R4: a backup may have undone the deletion
	}
	if len(f.Missing()) > 0 {
		return Keep{Reason: "owner references that are not kept in memory have to be read first"}
	}
	switch f.Object.Phase {
	case ownership.Orphaning:
		return finishOrphan(f)
	case ownership.Foreground:
		return finishForeground(f)
	case ownership.Terminating:
		return Keep{Reason: "already terminating"} // R8: others finish it
	case ownership.Active:
	}
	return decideActive(f)
}

// finishOrphan detaches the dependents first, then removes the finalizer (R13).
func finishOrphan(f Facts) Decision {
	if len(f.Dependents) > 0 {
		return Disown{Dependents: f.Dependents}
	}
	return removeFinalizer(f, ownership.FinalizerOrphan)
}

// finishForeground removes the finalizer when no dependent blocks any longer (R14). The
// dependents get decisions of their own. Objects that block each other in a cycle would wait
// forever, so the references inside the cycle stop blocking (R10).
func finishForeground(f Facts) Decision {
	switch {
	case len(f.Cycle) > 0:
		return Unblock{Cycle: f.Cycle, Owners: unblocked(f.Owners)}
	case len(f.Blocking) > 0:
		return Await{Blocking: f.Blocking}
	case len(f.Doubtful) > 0:
		return Verify{Claims: f.Doubtful}
	default:
		return removeFinalizer(f, ownership.FinalizerForeground)
	}
}

// decideActive decides about an object that is not being deleted.
func decideActive(f Facts) Decision {
	if len(f.Owners) == 0 {
		return Keep{Reason: "no owner references"} // R8
	}
	by := sortByStanding(f.Owners)
	switch {
	case len(by[Misplaced]) > 0:
		// R5: a cluster-scoped object is never deleted for a namespaced owner. The reference
		// is only reported.
		return Keep{Reason: "a cluster-scoped object cannot have a namespaced owner: " + names(by[Misplaced])}
	case len(by[Unverified]) > 0:
		return Verify{Claims: claims(by[Unverified])} // R7
	case len(by[Solid]) > 0:
		return keepOrDetach(f, by)
	case len(by[Unmapped]) > 0:
		return Park{Kinds: kinds(by[Unmapped])} // R7: one of these may be solid
	case len(by[Waiting]) > 0 && f.HasDependents:
		return Delete{Propagation: Foreground, Reason: reason(by)} // R10
	default:
		return Delete{Propagation: propagation(f.Object.Finalizers), Reason: reason(by)} // R11
	}
}

// keepOrDetach keeps an object that has a solid owner, and detaches it from dangling and from
// waiting owners (R9), so that the deletion of the latter can complete.
func keepOrDetach(f Facts, by standings) Decision {
	reason := reason(by)
	if len(by[Dangling])+len(by[Waiting]) == 0 {
		return Keep{Reason: reason}
	}
	d := Detach{Reason: reason}
	for _, o := range f.Owners {
		if o.Standing == Dangling || o.Standing == Waiting {
			d.Remove = append(d.Remove, o.Reference.UID)
		} else {
			d.Remaining = append(d.Remaining, o.Reference)
		}
	}
	slices.Sort(d.Remove)
	d.Remove = slices.Compact(d.Remove)
	return d
}

// propagation respects a finalizer that the object already has (R11, BG-06).
func propagation(finalizers []string) Propagation {
	switch {
	case slices.Contains(finalizers, ownership.FinalizerOrphan):
		return Orphan
	case slices.Contains(finalizers, ownership.FinalizerForeground):
		return Foreground
	default:
		return Background
	}
}

// removeFinalizer removes one finalizer and leaves all others in their order (R16).
func removeFinalizer(f Facts, finalizer string) Decision {
	remaining := slices.DeleteFunc(slices.Clone(f.Object.Finalizers), func(other string) bool { return other == finalizer })
	return RemoveFinalizer{Finalizer: finalizer, Remaining: remaining}
}

// unblocked returns the references; references inside the cycle no longer block. All others stay
// as they are, including tri-state flags (R10, CF-06).
func unblocked(owners []Owner) []ownership.Reference {
	list := make([]ownership.Reference, 0, len(owners))
	for _, o := range owners {
		if o.InCycle && o.Reference.Blocking() {
			o.Reference.BlockOwnerDeletion = ownership.False
		}
		list = append(list, o.Reference)
	}
	return list
}

// standings groups the owners by standing, each group in the stored order.
type standings [Misplaced + 1][]Owner

func sortByStanding(owners []Owner) (by standings) {
	for _, o := range owners {
		by[o.Standing] = append(by[o.Standing], o)
	}
	return by
}

// reason describes how the owners stand, in the words of the rules.
func reason(by standings) string {
	var parts []string
	for _, part := range []struct {
		word     string
		standing Standing
	}{
		{"held by ", Solid},
		{"owners absent: ", Dangling},
		{"owners in foreground deletion: ", Waiting},
		{"kinds not served: ", Unmapped},
	} {
		if owners := by[part.standing]; len(owners) > 0 {
			parts = append(parts, part.word+names(owners))
		}
	}
	return strings.Join(parts, "; ")
}

func names(owners []Owner) string {
	all := make([]string, 0, len(owners))
	for _, o := range owners {
		all = append(all, named(o.Reference))
	}
	return list(all)
}

// claims returns the claims on some owners, sorted, each once.
func claims(owners []Owner) []ownership.Claim {
	all := make([]ownership.Claim, 0, len(owners))
	for _, o := range owners {
		all = append(all, o.Claim)
	}
	return sortedClaims(all)
}

// kinds returns the kinds of some owners, sorted, each once.
func kinds(owners []Owner) []ownership.Kind {
	all := make([]ownership.Kind, 0, len(owners))
	for _, o := range owners {
		all = append(all, o.Claim.Kind)
	}
	slices.SortFunc(all, compareKinds)
	return slices.Compact(all)
}
