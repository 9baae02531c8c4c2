package verdict_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/ownership"
	"github.com/coppice-dev/coppice/verdict"
)

// model is the slow and obvious form of graph and verdict together: maps of what
// was seen, and the rules read off them anew for each question. It is the oracle
// for random histories.
type model struct {
	objects map[ownership.UID]ownership.Object
	stale   map[ownership.UID]bool // observed before the last epoch
	absent  map[ownership.UID]tombstone
	answers map[ownership.Claim]answer
	scopes  map[ownership.Kind]ownership.Scope
}

type tombstone struct {
	version string
	last    *ownership.Object // as it was observed, if ever
}

type answer struct {
	presence ownership.Presence
	phase    ownership.Phase
}

func newModel() *model {
	return &model{
		objects: map[ownership.UID]ownership.Object{},
		stale:   map[ownership.UID]bool{},
		absent:  map[ownership.UID]tombstone{},
		answers: map[ownership.Claim]answer{},
		scopes:  map[ownership.Kind]ownership.Scope{},
	}
}

// compareVersions tells of two versions which are numbers how they compare.
func compareVersions(a, b string) (order int, ok bool) {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	if errX != nil || errY != nil {
		return 0, a == b && a != ""
	}
	switch {
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, true
}

func (m *model) observe(o ownership.Object) {
	recorded := m.objects[o.UID].ResourceVersion
	if t, ok := m.absent[o.UID]; ok {
		recorded = t.version
	}
	if order, ok := compareVersions(o.ResourceVersion, recorded); ok && order <= 0 && !m.stale[o.UID] {
		return
	}
	before, was := m.objects[o.UID]
	moved := !was || before.Kind != o.Kind || before.Namespace != o.Namespace || before.Name != o.Name
	m.objects[o.UID] = o
	delete(m.stale, o.UID)
	delete(m.absent, o.UID)
	if moved {
		for _, d := range m.objects {
			for _, r := range d.Owners {
				c := m.claim(d, r)
				if r.UID == o.UID && (m.meets(d, r) || !was && m.answers[c].presence == ownership.Present) {
					delete(m.answers, c)
				}
			}
		}
	}
	m.prune()
}

func (m *model) refresh(o ownership.Object) {
	if _, ok := m.objects[o.UID]; ok {
		m.observe(o)
	}
}

func (m *model) forget(uid ownership.UID, version string) {
	t := m.absent[uid]
	recorded := t.version
	if o, ok := m.objects[uid]; ok {
		recorded, t.last = o.ResourceVersion, &o
	}
	if order, ok := compareVersions(version, recorded); ok && order < 0 && !m.stale[uid] {
		return
	}
	t.version = version
	m.leave(uid)
	m.absent[uid] = t
	m.prune()
}

func (m *model) vanish(uid ownership.UID) {
	if _, ok := m.absent[uid]; !ok {
		m.leave(uid)
		m.prune()
	}
}

func (m *model) leave(uid ownership.UID) {
	delete(m.objects, uid)
	delete(m.stale, uid)
	for c := range m.answers {
		if c.UID == uid {
			delete(m.answers, c)
		}
	}
}

func (m *model) replace(k ownership.Kind, objects []ownership.Object) {
	listed := map[ownership.UID]bool{}
	for _, o := range objects {
		m.observe(o)
		listed[o.UID] = true
	}
	for uid, o := range m.objects {
		if o.Kind == k && !listed[uid] {
			m.vanish(uid)
		}
	}
	for c, a := range m.answers {
		if _, ok := m.objects[c.UID]; c.Kind == k && a.presence == ownership.Present && !ok {
			delete(m.answers, c)
		}
	}
}

func (m *model) setScope(k ownership.Kind, s ownership.Scope) {
	if m.scopes[k] == s {
		return
	}
	m.scopes[k] = s
	for c := range m.answers {
		if c.Kind == k {
			delete(m.answers, c)
		}
	}
}

func (m *model) resolve(c ownership.Claim, p ownership.Presence, phase ownership.Phase) {
	scope := m.scopes[c.Kind]
	if scope == ownership.ScopeUnknown || (scope == ownership.Cluster) != (c.Namespace == "") {
		return
	}
	open := false
	for _, d := range m.objects {
		for _, r := range d.Owners {
			open = open || m.claim(d, r) == c && !m.meets(d, r)
		}
	}
	_, gone := m.absent[c.UID]
	switch {
	case !open:
	case gone && p == ownership.Present:
		delete(m.absent, c.UID)
	case gone:
	case p == ownership.Unknown:
		delete(m.answers, c)
	default:
		m.answers[c] = answer{p, phase}
	}
}

func (m *model) newEpoch() {
	clear(m.absent)
	clear(m.answers)
	for uid := range m.objects {
		m.stale[uid] = true
	}
}

// prune forgets what nobody claims.
func (m *model) prune() {
	claims, uids := map[ownership.Claim]bool{}, map[ownership.UID]bool{}
	for _, d := range m.objects {
		for _, r := range d.Owners {
			claims[m.claim(d, r)] = true
			uids[r.UID] = true
		}
	}
	for c := range m.answers {
		if !claims[c] {
			delete(m.answers, c)
		}
	}
	for uid := range m.absent {
		if !uids[uid] {
			delete(m.absent, uid)
		}
	}
}

func (m *model) claim(d ownership.Object, r ownership.Reference) ownership.Claim {
	c := ownership.Claim{Kind: r.OwnerKind(), Namespace: d.Namespace, Name: r.Name, UID: r.UID}
	if m.scopes[c.Kind] == ownership.Cluster {
		c.Namespace = ""
	}
	return c
}

func (m *model) meets(d ownership.Object, r ownership.Reference) bool {
	o, ok := m.objects[r.UID]
	return ok && o.Kind == r.OwnerKind() && o.Name == r.Name && (o.Namespace == "" || o.Namespace == d.Namespace)
}

func (m *model) standing(d ownership.Object, r ownership.Reference) verdict.Standing {
	present := func(phase ownership.Phase) verdict.Standing {
		if phase == ownership.Foreground {
			return verdict.Waiting
		}
		return verdict.Solid
	}
	owner, isObserved := m.objects[r.UID]
	if m.meets(d, r) {
		return present(owner.Phase)
	}
	t, isAbsent := m.absent[r.UID]
	scope := m.scopes[r.OwnerKind()]
	home := owner.Namespace
	if t.last != nil {
		home = t.last.Namespace
	}
	if d.Namespace == "" && (scope == ownership.Namespaced || scope == ownership.ScopeUnknown && home != "") {
		return verdict.Misplaced
	}
	if isAbsent && (d.Namespace != "" || scope == ownership.Cluster || t.last != nil) {
		return verdict.Dangling
	}
	if scope == ownership.ScopeUnknown {
		return verdict.Unmapped
	}
	switch a := m.answers[m.claim(d, r)]; {
	case a.presence == ownership.Absent:
		return verdict.Dangling
	case a.presence == ownership.Present && isObserved:
		return present(owner.Phase)
	case a.presence == ownership.Present:
		return present(a.phase)
	}
	return verdict.Unverified
}

// dependents are the objects with a reference to o that makes them its dependents.
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

// reaches tells whether there is a way of blocking references from one object in
// foreground deletion to another.
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

// decide gives the decision in short: its kind and what it is about.
func (m *model) decide(o ownership.Object) string {
	if doubted := m.doubted(o); len(doubted) > 0 {
		return "reread " + join(doubted)
	}
	switch o.Phase {
	case ownership.Terminating:
		return "keep"
	case ownership.Orphaning:
		disown := slices.DeleteFunc(m.dependents(o, anyReference), func(uid ownership.UID) bool { return uid == o.UID })
		if len(disown) > 0 {
			return "disown " + join(disown)
		}
		return m.decideDoubtful(o, "release orphan")
	case ownership.Foreground:
		if cycle := m.cycle(o); len(cycle) > 0 {
			return "unblock " + join(cycle)
		}
		if blocking := m.dependents(o, ownership.Reference.Blocking); len(blocking) > 0 {
			return "await " + join(blocking)
		}
		return m.decideDoubtful(o, "release foregroundDeletion")
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

// cycle is the cycle that an object in foreground deletion is part of.
func (m *model) cycle(o ownership.Object) (uids []ownership.UID) {
	for uid := range m.objects {
		if m.reaches(o.UID, uid) && m.reaches(uid, o.UID) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// doubted are the objects whose deletion a backup may have undone.
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

// decideDoubtful is otherwise, unless a claim on o may be good under another kind.
func (m *model) decideDoubtful(o ownership.Object, otherwise string) string {
	var claims []string
	for _, d := range m.objects {
		for _, r := range d.Owners {
			scope := m.scopes[r.OwnerKind()]
			fits := r.UID == o.UID && r.Name == o.Name &&
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

// inShort gives a real decision as the model gives its own.
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
	case verdict.Release:
		return "release " + d.Finalizer
	}
	panic("unknown decision")
}
