package verdict_test

import (
	"strconv"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// model is a slow and obvious form of graph and verdict together: maps of observations, to which
// it applies the rules anew for each query. It is the oracle for random histories.
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

// compareVersions compares two versions that are numbers.
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

// prune drops knowledge about owners that are no longer claimed.
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
	// R5: a cluster-scoped dependent must not have a namespaced owner. While the kind of the
	// reference is not served, only an observed owner shows whether the kind is namespaced.
	isCluster := scope == ownership.Cluster || t.last != nil && t.last.Kind == r.OwnerKind()
	if isAbsent && (d.Namespace != "" || isCluster) {
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
