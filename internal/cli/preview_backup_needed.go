package cli

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// needed returns the candidates that the new backup needs, as it should have them. now has the objects of the new backup that the
// attempt has found. The preview reaches an object only through owners that it sees: a dependent of a needed object is needed, too.
func (a *attempt) needed(candidates, now []undo.Kept) []undo.Kept {
	s := a.search(candidates, now)
	for n := range s.all {
		if c := &s.all[n]; a.needsAlone(c) {
			s.need(c)
		}
	}
	for len(s.queue) > 0 {
		owner := s.queue[0]
		s.queue = s.queue[1:]
		for _, c := range s.dependents[owner] {
			s.lose(c, owner)
		}
	}
	var needed []undo.Kept
	for n := range s.all {
		if c := &s.all[n]; c.isNeeded {
			needed = append(needed, a.asNeeded(c))
		}
	}
	return needed
}

// candidate is an object that only the earlier backup has.
type candidate struct {
	undo.Kept

	now      undo.Existing // the object, if it still exists
	isUnread bool          // it is unknown whether it exists
	isNeeded bool
	keepers  int // the number of its owners that exist, and that the deletion does not remove
}

// exists reports whether the object still exists: no other one has its place.
func (c *candidate) exists() bool { return !c.isUnread && c.now.UID == c.UID() }

// owners returns the UIDs of the owners; of an object that cannot be read, those in the earlier backup.
func (c *candidate) owners() []types.UID {
	references := c.now.Owners
	if !c.exists() {
		references = c.Object.GetOwnerReferences()
	}
	var owners []types.UID
	for _, r := range references {
		if !slices.Contains(owners, r.UID) {
			owners = append(owners, r.UID)
		}
	}
	return owners
}

// neededSearch looks for needed candidates. It looks at each reference to an owner once.
type neededSearch struct {
	attempt    *attempt
	all        []candidate
	dependents map[types.UID][]*candidate // by the UIDs of their owners
	existing   map[types.UID]bool         // the known objects that exist, and are not being deleted
	going      map[types.UID]bool         // the objects that the deletion removes, or may remove
	queue      []types.UID                // those of them whose dependents have not lost them yet
}

// search begins a search. The objects of the new backup go, or stay.
func (a *attempt) search(candidates, now []undo.Kept) *neededSearch {
	s := &neededSearch{
		attempt: a, all: make([]candidate, len(candidates)),
		dependents: map[types.UID][]*candidate{}, existing: map[types.UID]bool{}, going: map[types.UID]bool{},
	}
	for _, e := range a.found.Existing {
		s.existing[e.UID] = !e.Terminating
	}
	for n := range now {
		s.existing[now[n].UID()] = now[n].Object.GetDeletionTimestamp() == nil
		if !now[n].Stays {
			s.remove(now[n].UID())
		}
	}
	for n, k := range candidates {
		place := k.Place()
		c := &s.all[n]
		*c = candidate{Kept: k, now: a.found.Existing[place], isUnread: a.isUnread(place)}
		for _, owner := range c.owners() {
			s.dependents[owner] = append(s.dependents[owner], c)
			if s.existing[owner] {
				c.keepers++
			}
		}
	}
	return s
}

// remove records that the deletion removes an object, or may remove it.
func (s *neededSearch) remove(uid types.UID) {
	if !s.going[uid] {
		s.going[uid] = true
		s.queue = append(s.queue, uid)
	}
}

// need records that the backup needs a candidate.
func (s *neededSearch) need(c *candidate) {
	c.isNeeded = true
	if !c.Stays {
		s.remove(c.UID())
	}
}

// lose records that the deletion removes an owner of a candidate. One that was to stay goes now unless another owner is known to
// keep it: somebody else may have removed the others since, and undo would not create an object that stays. The dependents of a
// deletion with the policy orphan stay in any case.
func (s *neededSearch) lose(c *candidate, owner types.UID) {
	if s.existing[owner] {
		c.keepers--
	}
	if c.keepers == 0 && !s.attempt.orphans {
		c.Stays = false
	}
	if c.isNeeded || c.exists() {
		s.need(c)
	}
}

// needsAlone reports whether the backup needs a candidate, whatever its owners are.
func (a *attempt) needsAlone(c *candidate) bool {
	switch {
	case c.isUnread:
		return true
	case !c.exists():
		return a.inDoubt // a DELETE that was refused has not removed it
	case c.Stays && a.inDoubt:
		return true // the DELETE may have removed its references
	}
	return a.isUnseen(&c.Kept) || a.inDoubt && c.now.Terminating
}

// asNeeded returns a needed candidate with the references to owners that undo should restore.
func (a *attempt) asNeeded(c *candidate) undo.Kept {
	if !c.exists() {
		return c.Kept
	}
	k := c.Kept
	k.Object = k.Object.DeepCopy()
	k.Object.SetOwnerReferences(a.references(c.Kept, c.now))
	return k
}

// references returns the present owner references of a kept object. After a DELETE in doubt, which may have removed some, those
// of the last attempt are added.
func (a *attempt) references(k undo.Kept, now undo.Existing) []metav1.OwnerReference {
	references := slices.Clone(now.Owners)
	if !a.inDoubt || !k.Stays && !now.Terminating {
		return references
	}
	for _, r := range k.Object.GetOwnerReferences() {
		if !slices.ContainsFunc(references, func(has metav1.OwnerReference) bool { return has.UID == r.UID }) {
			references = append(references, r)
		}
	}
	return references
}
