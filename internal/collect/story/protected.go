package story

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// mostGuards bounds how many protected objects a Book knows.
const mostGuards = 10_000

// guard is a protected object (R28) that is not being deleted: it holds its namespace, the definition of its kind,
// and owners whose foreground deletion it blocks.
type guard struct {
	Ref

	owners []ownership.UID // which it blocks
	homes  []string
}

// protect records whether an object that is not being deleted is protected.
func (b *Book) protect(o *ownership.Object, home ownership.UID, now time.Time) {
	if !o.Protected && !b.isGuarded.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before, wasProtected := b.guards[o.UID]
	switch {
	case !o.Protected:
		b.unprotectLocked(o.UID)
	case wasProtected || len(b.guards) < mostGuards:
		b.guards[o.UID] = guardOf(o, home)
		b.isGuarded.Store(true)
	}
	if wasProtected == o.Protected {
		return
	}
	if !o.Protected {
		b.releaseLocked(&before, now)
		return
	}
	if g, kept := b.guards[o.UID]; kept {
		b.standLocked(&g, now)
	}
}

// standLocked records in the stories that wait for a protected object that it stays. The object belongs to one of
// them.
func (b *Book) standLocked(g *guard, now time.Time) {
	for _, s := range b.order {
		if s.waiting == 0 || !b.isHeldBy(s, g) {
			continue
		}
		m, known := b.member(g.UID)
		switch {
		case !known:
			m = b.add(s, b.entryOf(g, s))
			s.kept++
		case m.story == s && m.entry != nil && m.entry.marked == 0 && m.entry.gone == 0:
			if !m.entry.kept {
				s.kept++
			}
			m.entry.kept, m.entry.protected = true, true
		default:
			m = member{story: s} // its waits have changed
		}
		b.touch(m, now)
		s.guarded = b.changes
	}
}

// entryOf returns the entry of a protected object in a story that waits for it.
func (b *Book) entryOf(g *guard, s *story) *entry {
	e := &entry{Ref: g.Ref, kept: true, protected: true}
	for _, uid := range g.owners {
		e.owners = append(e.owners, Owner{UID: uid, Blocking: true})
	}
	for _, key := range g.homes {
		if home := b.homes[key]; e.in == "" && home != nil && home.isWaiting() && b.members[home.UID].story == s {
			e.in = home.UID
		}
	}
	return e
}

// releaseLocked records in the stories that wait for an object that it is no longer protected. An object that has
// lost no owner does not stay: it will be deleted.
func (b *Book) releaseLocked(g *guard, now time.Time) {
	if m := b.members[g.UID]; m.entry != nil && m.entry.protected {
		m.entry.protected = false
		if len(m.entry.lost) == 0 {
			m.entry.kept = false
			m.story.kept--
		}
		b.touch(m, now)
	}
	for _, s := range b.order {
		if s.waiting > 0 && b.isHeldBy(s, g) {
			b.touch(member{story: s}, now)
			s.guarded = b.changes
		}
	}
}

// meetLocked records the protected objects that an object waits for from now on.
func (b *Book) meetLocked(e *entry, now time.Time) {
	home := homeKey(e)
	if len(b.guards) == 0 || home == "" && e.phase != ownership.Foreground {
		return
	}
	var met []guard
	for _, g := range b.guards {
		if home != "" && slices.Contains(g.homes, home) || e.phase == ownership.Foreground && slices.Contains(g.owners, e.UID) {
			met = append(met, g)
		}
	}
	slices.SortFunc(met, func(x, y guard) int { return cmp.Compare(x.String(), y.String()) })
	for n := range met {
		b.standLocked(&met[n], now)
	}
}

// unprotectLocked drops a protected object.
func (b *Book) unprotectLocked(uid ownership.UID) {
	delete(b.guards, uid)
	b.isGuarded.Store(len(b.guards) > 0)
}

func guardOf(o *ownership.Object, home ownership.UID) guard {
	g := guard{Ref: refOf(o, home), homes: []string{definitionKey(resourceOf(o.Kind))}}
	if o.Namespace != "" {
		g.homes = append(g.homes, namespaceKey(o.Namespace))
	}
	for i := range o.Owners {
		if o.Owners[i].Blocking() && len(g.owners) < mostOwners {
			g.owners = append(g.owners, o.Owners[i].UID)
		}
	}
	return g
}

// isHeldBy reports whether something in a story waits for a protected object.
func (b *Book) isHeldBy(s *story, g *guard) bool {
	for _, key := range g.homes {
		if home := b.homes[key]; home != nil && home.isWaiting() && b.members[home.UID].story == s {
			return true
		}
	}
	for _, uid := range g.owners {
		m := b.members[uid]
		if m.story == s && m.entry != nil && m.entry.isWaiting() && m.entry.phase == ownership.Foreground {
			return true
		}
	}
	return false
}

func (e *entry) isWaiting() bool { return e.marked != 0 && e.gone == 0 }

// guardsOf returns the protected objects that a story waits for, sorted.
func (b *Book) guardsOf(s *story) []Ref {
	if s.waiting == 0 || len(b.guards) == 0 {
		return nil
	}
	var found []Ref
	for _, g := range b.guards {
		if b.isHeldBy(s, &g) {
			found = append(found, g.Ref)
		}
	}
	slices.SortFunc(found, func(a, b Ref) int { return cmp.Compare(a.String(), b.String()) })
	return found
}
