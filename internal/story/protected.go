package story

import (
	"cmp"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// mostGuards bounds how many protected objects a Book knows.
const mostGuards = 10_000

// guard is an object that says that it is protected (R28), and is not being deleted: it holds the namespace that it is
// in, the definition of its kind, and owners whose foreground deletion it blocks.
type guard struct {
	Ref

	owners []ownership.UID // which it blocks
	homes  []string
}

// protect notes whether an object that is not being deleted is protected.
func (b *Book) protect(o *ownership.Object, now time.Time) {
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
		b.guards[o.UID] = guardOf(o)
		b.isGuarded.Store(true)
	}
	if wasProtected == o.Protected {
		return
	}
	if o.Protected {
		before = b.guards[o.UID]
	}
	for _, s := range b.order {
		if s.waiting > 0 && b.isHeldBy(s, &before) {
			b.touch(member{story: s}, now)
		}
	}
}

// unprotectLocked forgets a protected object.
func (b *Book) unprotectLocked(uid ownership.UID) {
	delete(b.guards, uid)
	b.isGuarded.Store(len(b.guards) > 0)
}

func guardOf(o *ownership.Object) guard {
	g := guard{Ref: refOf(o), homes: []string{definitionKey(resourceOf(o.Kind))}}
	if o.Namespace != "" {
		g.homes = append(g.homes, namespaceKey(o.Namespace))
	}
	for i := range o.Owners {
		if o.Owners[i].Blocking() {
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
