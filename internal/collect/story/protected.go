package story

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// mostGuards and mostGuardBytes bound the protected objects that a Book knows.
const (
	mostGuards     = 10_000
	mostGuardBytes = 8 << 20
)

// guard is a protected object (R28) that is not being deleted: it holds its namespace, the definition of its kind,
// and owners whose foreground deletion it blocks.
type guard struct {
	Ref

	owners []ownership.UID // which it blocks
	homes  []string
}

func guardOf(o *ownership.Object, home ownership.UID) guard {
	g := guard{Ref: refOf(o, home), homes: homesOf(o)}
	for i := range o.Owners {
		if o.Owners[i].Blocking() && len(g.owners) < mostOwners {
			g.owners = append(g.owners, o.Owners[i].UID)
		}
	}
	return g
}

func (g *guard) bytes() int {
	size := g.Ref.bytes()
	for _, uid := range g.owners {
		size += len(uid)
	}
	for _, key := range g.homes {
		size += len(key)
	}
	return size
}

// guards are the known protected objects.
type guards struct {
	byUID map[ownership.UID]guard
	bytes int
}

func newGuards() guards { return guards{byUID: map[ownership.UID]guard{}} }

// add adds or replaces a protected object; false if there is no room.
func (all *guards) add(g guard) bool {
	earlier, known := all.byUID[g.UID]
	size := all.bytes + g.bytes()
	if known {
		size -= earlier.bytes()
	}
	if size > mostGuardBytes || !known && len(all.byUID) >= mostGuards {
		return false
	}
	all.byUID[g.UID], all.bytes = g, size
	return true
}

// remove removes a protected object and returns it; false if it is not known.
func (all *guards) remove(uid ownership.UID) (guard, bool) {
	g, known := all.byUID[uid]
	if known {
		delete(all.byUID, uid)
		all.bytes -= g.bytes()
	}
	return g, known
}

func (all *guards) removeAll(isRemoved func(*guard) bool) {
	for uid, g := range all.byUID {
		if isRemoved(&g) {
			all.remove(uid)
		}
	}
}

// those returns the protected objects that meet a condition, sorted.
func (all *guards) those(meet func(*guard) bool) []guard {
	var found []guard
	for g := range maps.Values(all.byUID) {
		if meet(&g) {
			found = append(found, g)
		}
	}
	slices.SortFunc(found, func(x, y guard) int { return cmp.Compare(x.String(), y.String()) })
	return found
}

// HasGuards reports whether the Book knows protected objects. Seen has to be called for an object that is neither
// protected nor being deleted only if it does.
func (b *Book) HasGuards() bool { return len(b.guards.byUID) > 0 }

// seenActive records whether an object that is not being deleted is protected.
func (b *Book) seenActive(o *ownership.Object, home ownership.UID, now time.Time) {
	if !o.Protected {
		if g, known := b.guards.remove(o.UID); known {
			b.release(&g, now)
		}
		return
	}
	g := guardOf(o, home)
	_, isKnown := b.guards.byUID[o.UID]
	if b.guards.add(g) && !isKnown {
		b.guard(&g, now)
	}
}

// guard records in the stories that wait for a protected object that it stays. The object belongs to one of them.
func (b *Book) guard(g *guard, now time.Time) {
	for _, s := range b.shelf.order {
		if !b.isHeldBy(s, g) {
			continue
		}
		m, known := b.membership.of(g.UID)
		switch {
		case !known:
			m = b.add(s, b.entryOf(g, s))
		case m.story == s && m.entry != nil && m.entry.marked == 0 && m.entry.gone == 0:
			s.update(m.entry, func(e *entry) { e.kept, e.protected = true, true })
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
		if home, waits := b.membership.waitingHome(key); waits && home.story == s && e.in == "" {
			e.in = home.entry.UID
		}
	}
	return e
}

// release records in the stories that wait for an object that it is no longer protected. An object that has lost no
// owner does not stay: it will be deleted.
func (b *Book) release(g *guard, now time.Time) {
	if m, _ := b.membership.of(g.UID); m.entry != nil && m.entry.protected {
		m.story.update(m.entry, func(e *entry) { e.protected, e.kept = false, len(e.lost) > 0 })
		b.touch(m, now)
	}
	for _, s := range b.shelf.order {
		if b.isHeldBy(s, g) {
			b.touch(member{story: s}, now)
			s.guarded = b.changes
		}
	}
}

// waitForGuards records the protected objects that a marked object waits for from now on.
func (b *Book) waitForGuards(e *entry, now time.Time) {
	home, isForeground := homeKey(e.Kind, e.Name), e.phase == ownership.Foreground
	if home == "" && !isForeground {
		return
	}
	for _, g := range b.guards.those(func(g *guard) bool {
		return home != "" && slices.Contains(g.homes, home) || isForeground && slices.Contains(g.owners, e.UID)
	}) {
		b.guard(&g, now)
	}
}

// isHeldBy reports whether an object of a story waits for a protected object.
func (b *Book) isHeldBy(s *story, g *guard) bool {
	if s.counts[stateWaiting] == 0 {
		return false
	}
	for _, key := range g.homes {
		if home, waits := b.membership.waitingHome(key); waits && home.story == s {
			return true
		}
	}
	for _, uid := range g.owners {
		m := b.membership.members[uid]
		if m.story == s && m.entry.state() == stateWaiting && m.entry.phase == ownership.Foreground {
			return true
		}
	}
	return false
}
