package simulation

import (
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// oracle checks the collector's writes against the rules. It sees the whole history of the
// server, but of the collector's knowledge only the positions of its watches.
type oracle struct{ *cluster }

// beforeWrite checks a write before the server carries it out.
func (o *oracle) beforeWrite(before, after *version, by *call) {
	if by.worker.trusts != o.server.restored {
		return // decided before a restore that the collector could not have noticed yet
	}
	if by.uid == "" || by.version == "" {
		o.fail("R12", "%s carries no condition", by)
	}
	if !o.isMeant(before, by) {
		o.fail("S5", "%s changes %s, and the worker works on #%s", by, versionText(before), number(by.worker.uid))
	}
	switch by.verb {
	case remove:
		o.checkDelete(before, by)
	case patchOwners:
		o.checkOwners(before, after, by)
	case patchFinalizers:
		o.checkFinalizerRemoved(before, after, by)
	}
}

// isMeant reports whether a worker may write to an object: it is the object of the worker's key,
// or one of its dependents.
func (o *oracle) isMeant(v *version, by *call) bool {
	return v.UID == by.worker.uid || by.verb == patchOwners && hasOwner(v.Owners, by.worker.uid)
}

// afterWrite logs the result of a write.
func (o *oracle) afterWrite(after *version) {
	if o.log != nil {
		verb := "wrote"
		if after.gone {
			verb = "removed"
		}
		o.logf("  %s %s", verb, versionText(after))
	}
}

// checkDelete: S1, R8, R11.
func (o *oracle) checkDelete(before *version, by *call) {
	switch {
	case before.deleting:
		o.fail("R8", "%s is being deleted already, and deleted again by the collector", versionText(before))
	case len(before.Owners) == 0:
		o.fail("S1", "%s has no owners, and is deleted", versionText(before))
	}
	for _, r := range before.Owners {
		owner, stand := o.server.owner(before, r)
		switch stand {
		case solid:
			if !believesWaiting(owner) {
				o.fail("S1", "%s is deleted, though its owner stands: %s", versionText(before), versionText(owner))
			}
		case misplaced:
			if l := o.server.byUID[r.UID]; l != nil && l.now() == nil && l.versions[0].Namespace == "" {
				continue // the UID belonged to a cluster-scoped object that is gone (R6)
			}
			o.fail("R5", "%s is deleted, though it is cluster-scoped and names a namespaced owner", versionText(before))
		case unserved:
			if o.server.byUID[r.UID] == nil && o.wasUnserved(r.OwnerKind()) {
				o.fail("R3", "%s is deleted, though %s is not served", versionText(before), r.OwnerKind())
			}
		case dangling, waiting:
		}
	}
	goesDown := by.propagation == verdict.Foreground && o.waits(before) // R10
	if policy := policyOf(before); policy != "" && policy != by.propagation && !goesDown {
		o.fail("R11", "%s is deleted with policy %s", versionText(before), by.propagation)
	}
	o.checkDepth(before, by)
}

// checkDepth: an object with dependents is deleted with foreground if an owner waits for it, so
// that the owner is removed last (R10). The check uses the objects that the collector had
// observed before it decided.
func (o *oracle) checkDepth(before *version, by *call) {
	if by.propagation != verdict.Background {
		return
	}
	seen := func(v *version) bool { return v.revision <= by.worker.seen[o.server.index(v.Kind)] }
	isWaiting := slices.ContainsFunc(before.Owners, func(r ownership.Reference) bool {
		owner, stand := o.server.owner(before, r)
		return stand == waiting && seen(owner)
	})
	if !isWaiting || !seen(before) {
		return
	}
	if i := slices.IndexFunc(o.server.dependents(before, anyReference), seen); i >= 0 {
		o.fail("R10", "%s has dependents, an owner waits for it, and it is deleted in the background", versionText(before))
	}
}

// policyOf returns the policy that an object's finalizers request, or "".
func policyOf(v *version) verdict.Propagation {
	switch {
	case slices.Contains(v.Finalizers, ownership.FinalizerOrphan):
		return verdict.Orphan
	case slices.Contains(v.Finalizers, ownership.FinalizerForeground):
		return verdict.Foreground
	default:
		return ""
	}
}

// waits reports whether an owner of the object waits for it, or did a moment ago.
func (o *oracle) waits(d *version) bool {
	return slices.ContainsFunc(d.Owners, func(r ownership.Reference) bool {
		l := o.server.byUID[r.UID]
		return l != nil && l.wasForeground
	})
}

// wasUnserved reports whether a kind was never served.
func (o *oracle) wasUnserved(kind ownership.Kind) bool {
	return o.server.resource(kind).scope == ownership.ScopeUnknown
}

// checkOwners: S4, R9, R10, R13, R16.
func (o *oracle) checkOwners(before, after *version, by *call) {
	if !slices.Equal(before.Finalizers, after.Finalizers) || before.deleting != after.deleting {
		o.fail("S4", "%s changes more than owner references", by)
	}
	next := 0 // in after.Owners, which must be a subsequence of before.Owners
	for _, r := range before.Owners {
		kept := next < len(after.Owners) && after.Owners[next].UID == r.UID && sameButBlocking(after.Owners[next], r)
		if !kept {
			o.checkDetached(before, r)
			continue
		}
		o.checkUnblocked(before, r, after.Owners[next], by)
		next++
	}
	if next != len(after.Owners) {
		o.fail("S4", "%s adds or changes owner references of %s", by, versionText(before))
	}
}

func sameButBlocking(a, b ownership.Reference) bool {
	a.BlockOwnerDeletion = b.BlockOwnerDeletion
	return a == b
}

// checkDetached: a reference may be removed if its owner is gone, in foreground deletion, or
// orphans its dependents.
func (o *oracle) checkDetached(d *version, r ownership.Reference) {
	owner, stand := o.server.owner(d, r)
	switch {
	case stand == solid && owner.deleting && owner.life.wasOrphaning:
		// R13; the owner may have lost that finalizer meanwhile, but it is still being deleted.
	case stand == solid && !believesWaiting(owner):
		o.fail("S4", "%s is detached from an owner that stands: %s", versionText(d), versionText(owner))
	case stand == unserved && o.server.byUID[r.UID] == nil && o.wasUnserved(r.OwnerKind()):
		o.fail("R3", "%s is detached from an owner whose kind is not served: %s", versionText(d), r.OwnerKind())
	case stand == misplaced && !o.server.byUID[r.UID].letsGo():
		o.fail("R5", "%s is detached from an owner that it cannot have", versionText(d))
	}
}

// believesWaiting reports whether a worker may still treat an owner as in foreground deletion.
// The owner may have lost that finalizer since the decision, but it is still being deleted.
func believesWaiting(owner *version) bool { return owner.deleting && owner.life.wasForeground }

// letsGo reports whether an object was in orphan deletion at some time.
func (l *life) letsGo() bool { return l != nil && l.wasOrphaning }

// checkUnblocked: references stop blocking within a cycle only (R10).
func (o *oracle) checkUnblocked(d *version, old, now ownership.Reference, by *call) {
	switch {
	case old.BlockOwnerDeletion == now.BlockOwnerDeletion:
	case old.BlockOwnerDeletion != ownership.True || now.BlockOwnerDeletion != ownership.False:
		o.fail("S4", "%s: blockOwnerDeletion of #%s was changed, but not from true to false", versionText(d), number(old.UID))
	case !o.sawCycle(by.worker, d.life, o.server.byUID[old.UID]):
		o.fail("R10", "%s: the reference to #%s stops blocking, and is not part of a cycle", versionText(d), number(old.UID))
	}
}

// sawCycle reports whether a worker could take two objects for parts of one cycle: there are
// paths of blocking references from each to the other. Every object on the path counts with every
// state that it had since the worker's knowledge.
func (o *oracle) sawCycle(w *worker, a, b *life) bool {
	return o.sawWay(w, a, b, map[*life]bool{}) && o.sawWay(w, b, a, map[*life]bool{})
}

func (o *oracle) sawWay(w *worker, from, to *life, seen map[*life]bool) bool {
	if from == nil || seen[from] || !from.wasForeground {
		return false
	}
	seen[from] = true
	for i, v := range from.versions {
		isKnown := i == len(from.versions)-1 || from.versions[i+1].revision > w.seen[o.server.index(v.Kind)]
		if v.Phase != ownership.Foreground || !isKnown {
			continue
		}
		for _, r := range v.Owners {
			owner := o.server.byUID[r.UID]
			if blocks(r) && owner != nil && (owner == to || o.sawWay(w, owner, to, seen)) {
				return true
			}
		}
	}
	return false
}

// checkFinalizerRemoved: S2, S3, S7, R16.
func (o *oracle) checkFinalizerRemoved(before, after *version, by *call) {
	var removed []string
	kept := slices.DeleteFunc(slices.Clone(before.Finalizers), func(f string) bool {
		gone := !slices.Contains(after.Finalizers, f)
		if gone {
			removed = append(removed, f)
		}
		return gone
	})
	switch {
	case !slices.Equal(before.Owners, after.Owners) || before.deleting != after.deleting || !slices.Equal(kept, after.Finalizers):
		o.fail("S4", "%s changes more than finalizers of %s", by, versionText(before))
	case slices.ContainsFunc(removed, func(f string) bool { return !isOurs(f) }):
		o.fail("S7", "%s removes a finalizer of somebody else from %s", by, versionText(before))
	case len(removed) != 1 || !before.deleting:
		o.fail("S4", "%s: %s does not lose one finalizer only", by, versionText(before))
	case removed[0] == ownership.FinalizerOrphan:
		o.checkNoneMissed("S2", before, by, func(d *version) bool { return o.server.namesUID(d, before, anyReference) })
	default:
		o.checkNoneMissed("S3", before, by, func(d *version) bool { return o.server.names(d, before, blocks) })
	}
}

// checkNoneMissed: an owner may not lose its finalizer while it has a dependent from before its
// deletion (R15), or one that the collector had observed before it decided.
func (o *oracle) checkNoneMissed(rule string, owner *version, by *call, refers func(d *version) bool) {
	for _, d := range o.server.referring(owner, refers) {
		since := d
		for _, v := range slices.Backward(d.life.versions) {
			if !refers(v) {
				break
			}
			since = v
		}
		switch i := o.server.index(d.Kind); {
		case since.revision <= owner.life.marked:
			o.fail(rule, "%s loses its finalizer, and was an owner of %s before its deletion began", versionText(owner), versionText(d))
		case since.revision <= by.worker.seen[i]:
			o.fail(rule, "%s loses its finalizer, and was known to be an owner of %s", versionText(owner), versionText(d))
		}
	}
}

// rereads returns the number of requests that are allowed at rest: owners that cannot be watched are
// read repeatedly (R7), each once per round and dependent. A dependent with many owners is read too, with its other owners
// that are not observed: once by itself, and once for each new answer about an owner that others share (R30).
func (o *oracle) rereads() int {
	n := 0
	for _, d := range o.server.standing() {
		before := n
		for _, r := range d.Owners {
			if owner, _ := o.server.owner(d, r); owner != nil && !o.server.resource(owner.Kind).watched {
				n++
			}
		}
		if unwatched := n - before; unwatched > 0 && len(d.Owners) > references {
			n = before + (1+unwatched)*(1+len(d.Owners))
		}
	}
	return n
}

// withFaults: L5. A kind that cannot be read or written holds its dependents and all completions (R15),
// and nothing else.
func (o *oracle) withFaults() {
	broken := func(kind ownership.Kind) bool { return o.server.resource(kind).broken }
	for _, v := range o.server.standing() {
		isHeld := v.deleting || broken(v.Kind) || !o.server.resource(v.Kind).watched ||
			slices.ContainsFunc(v.Owners, func(r ownership.Reference) bool { return broken(r.OwnerKind()) })
		if what := o.server.undone(v); what != "" && !isHeld {
			o.fail("L5", "%s: %s, because of a kind that it has nothing to do with", versionText(v), what)
			return
		}
	}
}

// atRest: L1, L2, S9.
func (o *oracle) atRest() {
	var want []ownership.Object
	for _, v := range o.server.standing() {
		if !o.server.resource(v.Kind).watched {
			continue
		}
		want = append(want, v.Object)
		rule := "L1"
		if v.deleting {
			rule = "L2"
		}
		if what := o.server.undone(v); what != "" {
			o.fail(rule, "%s: %s", versionText(v), what)
			return
		}
		if o.server.hasMisplaced(v) && !o.in.warned[v.UID] {
			o.fail("R5", "%s names owners that it cannot have, and no Event was written", versionText(v))
		}
	}
	o.checkGraph()
	slices.SortFunc(want, func(a, b ownership.Object) int { return strings.Compare(string(a.UID), string(b.UID)) })
	var got []ownership.Object
	o.in.collector.View(func(g *ownership.Graph) { got = slices.Collect(g.All()) })
	if !slices.EqualFunc(got, want, sameObject) {
		o.fail("S9", "graph and server differ (-server +graph): %s", cmp.Diff(want, got))
	}
}

func sameObject(a, b ownership.Object) bool {
	return a.UID == b.UID && a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name &&
		a.ResourceVersion == b.ResourceVersion && a.Phase == b.Phase &&
		slices.Equal(a.Finalizers, b.Finalizers) && keepsOwners(a, b.Owners)
}

// keepsOwners reports whether an object of the graph has these owners, or some of them and the number of the others.
func keepsOwners(o ownership.Object, all []ownership.Reference) bool {
	next := 0 // in o.Owners, which must be a subsequence
	for _, r := range all {
		if next < len(o.Owners) && o.Owners[next] == r {
			next++
		}
	}
	return next == len(o.Owners) && next+o.MoreOwners == len(all)
}
