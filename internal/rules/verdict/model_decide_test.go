package verdict_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// dependents returns the objects with a reference to o that makes them its dependents.
func (m *model) dependents(o ownership.Object, is func(ownership.Reference) bool) (uids []ownership.UID) {
	for uid, d := range m.objects {
		if slices.ContainsFunc(d.Owners, func(r ownership.Reference) bool {
			s := m.standing(d, r)
			return r.UID == o.UID && is(r) && (s == verdict.Solid || s == verdict.Waiting)
		}) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

func anyReference(ownership.Reference) bool { return true }

// reaches reports whether a path of blocking references leads from one object in foreground
// deletion to another.
func (m *model) reaches(from, to ownership.UID) bool {
	seen := map[ownership.UID]bool{}
	var visit func(uid ownership.UID) bool
	visit = func(uid ownership.UID) bool {
		o, ok := m.objects[uid]
		if !ok || o.Phase != ownership.Foreground {
			return false
		}
		for _, r := range o.Owners {
			if !r.Blocking() || m.standing(o, r) != verdict.Waiting {
				continue
			}
			if owner, ok := m.objects[r.UID]; !ok || owner.Phase != ownership.Foreground {
				continue // known by a live read only
			}
			if r.UID == to {
				return true
			}
			if !seen[r.UID] {
				seen[r.UID] = true
				if visit(r.UID) {
					return true
				}
			}
		}
		return false
	}
	return visit(from)
}

// decide returns the decision in short: its type and its arguments.
func (m *model) decide(o ownership.Object) string {
	if doubted := m.doubted(o); len(doubted) > 0 {
		return "reread " + join(doubted)
	}
	switch o.Phase {
	case ownership.Terminating:
		return "keep"
	case ownership.Orphaning:
		if disown := m.orphans(o); len(disown) > 0 {
			return "disown " + join(disown)
		}
		return "remove-finalizer orphan"
	case ownership.Foreground:
		if cycle := m.cycle(o); len(cycle) > 0 {
			return "unblock " + join(cycle)
		}
		if blocking := m.dependents(o, ownership.Reference.Blocking); len(blocking) > 0 {
			return "await " + join(blocking)
		}
		return m.decideDoubtful(o, "remove-finalizer foregroundDeletion")
	case ownership.Active:
	}
	by := map[verdict.Standing][]ownership.Reference{}
	for _, r := range o.Owners {
		s := m.standing(o, r)
		by[s] = append(by[s], r)
	}
	switch {
	case len(o.Owners) == 0, len(by[verdict.Misplaced]) > 0:
		return "keep"
	case len(by[verdict.Unverified]) > 0:
		var claims []string
		for _, r := range by[verdict.Unverified] {
			claims = append(claims, m.claim(o, r).String())
		}
		return "verify " + sortedSet(claims)
	case len(by[verdict.Solid]) > 0:
		if len(by[verdict.Dangling])+len(by[verdict.Waiting]) == 0 {
			return "keep"
		}
		return fmt.Sprintf("detach, %d of %d remain", len(by[verdict.Solid])+len(by[verdict.Unmapped]), len(o.Owners))
	case len(by[verdict.Unmapped]) > 0:
		var kinds []string
		for _, r := range by[verdict.Unmapped] {
			kinds = append(kinds, r.OwnerKind().String())
		}
		return "park " + sortedSet(kinds)
	case len(by[verdict.Waiting]) > 0 && len(m.dependents(o, anyReference)) > 0:
		return "delete Foreground"
	case slices.Contains(o.Finalizers, ownership.FinalizerOrphan):
		return "delete Orphan"
	case slices.Contains(o.Finalizers, ownership.FinalizerForeground):
		return "delete Foreground"
	}
	return "delete Background"
}

// cycle returns the cycle that an object in foreground deletion is part of.
func (m *model) cycle(o ownership.Object) (uids []ownership.UID) {
	for uid := range m.objects {
		if m.reaches(o.UID, uid) && m.reaches(uid, o.UID) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// doubted returns the objects whose deletion a backup may have undone.
func (m *model) doubted(o ownership.Object) []ownership.UID {
	restsOn := map[ownership.UID]bool{}
	switch o.Phase {
	case ownership.Terminating:
	case ownership.Orphaning:
		restsOn[o.UID] = true
	case ownership.Foreground:
		restsOn[o.UID] = true
		for _, uid := range m.cycle(o) {
			restsOn[uid] = true
		}
	case ownership.Active:
		for _, r := range o.Owners {
			restsOn[r.UID] = restsOn[r.UID] || m.standing(o, r) == verdict.Waiting
		}
	}
	var uids []ownership.UID
	for uid, rests := range restsOn {
		if rests && m.stale[uid] {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// orphans returns the objects of the namespace of o, or all if it has none, that name its UID, and whose claim is not
// absent.
func (m *model) orphans(o ownership.Object) (uids []ownership.UID) {
	for uid, d := range m.objects {
		isOrphan := slices.ContainsFunc(d.Owners, func(r ownership.Reference) bool {
			return r.UID == o.UID && m.standing(d, r) != verdict.Dangling
		})
		if isOrphan && uid != o.UID && (o.Namespace == "" || o.Namespace == d.Namespace) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// decideDoubtful returns otherwise, unless a blocking claim on o may be valid under another kind.
func (m *model) decideDoubtful(o ownership.Object, otherwise string) string {
	var claims []string
	for _, d := range m.objects {
		for _, r := range d.Owners {
			scope := m.scopes[r.OwnerKind()]
			fits := r.UID == o.UID && r.Name == o.Name && r.Blocking() &&
				(o.Namespace == "" && scope == ownership.Cluster ||
					o.Namespace != "" && scope == ownership.Namespaced && o.Namespace == d.Namespace)
			if fits && m.standing(d, r) == verdict.Unverified {
				claims = append(claims, m.claim(d, r).String())
			}
		}
	}
	if len(claims) > 0 {
		return "verify " + sortedSet(claims)
	}
	return otherwise
}

func sortedSet(texts []string) string {
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}

// inShort returns a real decision in the form of the model's.
func inShort(f verdict.Facts, d verdict.Decision) string {
	switch d := d.(type) {
	case verdict.Keep:
		return "keep"
	case verdict.Verify:
		var claims []string
		for _, c := range d.Claims {
			claims = append(claims, c.String())
		}
		return "verify " + sortedSet(claims)
	case verdict.Reread:
		return "reread " + join(d.Objects)
	case verdict.Park:
		var kinds []string
		for _, k := range d.Kinds {
			kinds = append(kinds, k.String())
		}
		return "park " + sortedSet(kinds)
	case verdict.Detach:
		return fmt.Sprintf("detach, %d of %d remain", len(d.Remaining), len(f.Object.Owners))
	case verdict.Unblock:
		return "unblock " + join(d.Cycle)
	case verdict.Delete:
		return "delete " + string(d.Propagation)
	case verdict.Await:
		return "await " + join(d.Blocking)
	case verdict.Disown:
		return "disown " + join(d.Dependents)
	case verdict.RemoveFinalizer:
		return "remove-finalizer " + d.Finalizer
	}
	panic("unknown decision")
}
