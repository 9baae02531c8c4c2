package crowd

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Store has the objects of a Population, with their changes. It is safe for concurrent use.
type Store struct {
	*Population
	now func() time.Time

	touched []atomic.Uint64 // a bit for each object that was changed or deleted

	mu        sync.Mutex
	revision  uint64             // of the last change; guarded by mu, and so is all below
	histories []history          // by kind
	modified  map[Number]uint64  // the revisions of objects that were modified
	deleted   map[Number]removal // objects that are gone
	patched   map[Number]*metav1.ObjectMeta
	tally     tally
}

// removal is the deletion of an object.
type removal struct {
	revision uint64
	at       time.Time
}

// NewStore returns a store in which all objects exist. now is the clock of the tally.
func NewStore(p *Population, now func() time.Time) *Store {
	const word = 64
	return &Store{
		Population: p, now: now, touched: make([]atomic.Uint64, p.Objects/word+1),
		revision: firstRevision + uint64(p.Objects), histories: make([]history, len(p.Kinds)),
		modified: map[Number]uint64{}, deleted: map[Number]removal{}, patched: map[Number]*metav1.ObjectMeta{},
		tally: tally{garbage: map[Number]bool{}},
	}
}

func (s *Store) isTouched(n Number) bool { return s.touched[n/64].Load()&(1<<(n%64)) != 0 }

func (s *Store) touch(n Number) { s.touched[n/64].Or(1 << (n % 64)) }

// state is the state of an object that exists.
type state struct {
	revision uint64
	patched  *metav1.ObjectMeta // nil if the metadata are the population's
}

// asOf returns the state of an object that existed at a revision. It may be newer, if the object was changed since.
func (s *Store) asOf(n Number, revision uint64) (state, bool) {
	if !s.isTouched(n) {
		return state{revision: firstRevision + uint64(n)}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone, ok := s.deleted[n]; ok && gone.revision <= revision {
		return state{}, false
	}
	return s.stateLocked(n), true
}

func (s *Store) stateLocked(n Number) state {
	revision, ok := s.modified[n]
	if !ok {
		revision = firstRevision + uint64(n)
	}
	return state{revision, s.patched[n]}
}

// current returns the state of an object now.
func (s *Store) current(n Number) (state, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, gone := s.deleted[n]; gone {
		return state{}, false
	}
	return s.stateLocked(n), true
}

// Revision returns the revision of the last change.
func (s *Store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// snapshot returns the revision of the last change, and the position in a kind's history after it.
func (s *Store) snapshot(k *Kind) (revision uint64, position int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision, s.histories[k.index].end()
}

// record counts a change, and adds it to the history.
func (s *Store) record(n Number, kind eventKind) uint64 {
	c, _ := s.at(n)
	s.revision++
	s.touch(n)
	s.histories[c.kind.index].add(event{s.revision, n, kind})
	return s.revision
}

// outcome is the result of a conditioned write.
type outcome int

const (
	done outcome = iota
	absent
	conflict
)

// preconditions of a write; the empty ones are not checked.
type preconditions struct {
	uid     types.UID
	version string
}

// Delete deletes an object for a client, and counts whether that was correct.
func (s *Store) Delete(n Number, when preconditions) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.checkLocked(n, when); o != done {
		return o
	}
	s.countLocked(n)
	s.removeLocked(n)
	return done
}

func (s *Store) checkLocked(n Number, when preconditions) outcome {
	if _, gone := s.deleted[n]; gone {
		return absent
	}
	if when.uid != "" && when.uid != UID(n) || when.version != "" && when.version != formatRevision(s.stateLocked(n).revision) {
		return conflict
	}
	return done
}

func (s *Store) removeLocked(n Number) {
	s.deleted[n] = removal{s.record(n, deleted), s.now()}
	delete(s.tally.garbage, n)
	for _, d := range s.Dependents(n) {
		if _, gone := s.deleted[d]; !gone && s.isGarbageLocked(d) {
			s.tally.garbage[d] = true
		}
	}
}

// Patch replaces metadata of an object.
func (s *Store) Patch(n Number, when preconditions, change func(*metav1.ObjectMeta)) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.checkLocked(n, when); o != done {
		return o
	}
	meta := s.metaLocked(n)
	change(&meta)
	s.patched[n] = &meta
	s.modified[n] = s.record(n, modified)
	meta.ResourceVersion = formatRevision(s.modified[n])
	if s.isGarbageLocked(n) {
		s.tally.garbage[n] = true
	} else {
		delete(s.tally.garbage, n)
	}
	return done
}

// metaLocked returns the metadata of an object, which the caller may change.
func (s *Store) metaLocked(n Number) metav1.ObjectMeta {
	now := s.stateLocked(n)
	if now.patched != nil {
		return *now.patched.DeepCopy()
	}
	c, i := s.at(n)
	var meta metav1.ObjectMeta
	e := encoder{population: s.Population}
	if err := meta.Unmarshal(e.meta(c, i, now.revision)); err != nil {
		panic(err) // the encoder is wrong
	}
	return meta
}

// isGarbageLocked reports whether an object has owners, and none of them exists. An object has the owner of the
// population, unless that reference was removed.
func (s *Store) isGarbageLocked(n Number) bool {
	owner, owned := s.Owner(n)
	if !owned {
		return false
	}
	if _, gone := s.deleted[owner]; !gone {
		return false
	}
	meta := s.patched[n]
	return meta == nil || slices.ContainsFunc(meta.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == UID(owner) })
}

// Modify changes the revision of a number of objects, chosen at random. Objects without a namespace stay as they are: a
// change of a CustomResourceDefinition, which is rare in a cluster, makes clients read discovery again.
func (s *Store) Modify(count int, random *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for done := 0; done < count; {
		n := Number(random.IntN(s.Objects))
		c, _ := s.at(n)
		if _, gone := s.deleted[n]; !gone && c.kind.Namespaced {
			done++
			s.modified[n] = s.record(n, modified)
			if meta := s.patched[n]; meta != nil {
				again := *meta
				again.ResourceVersion = formatRevision(s.modified[n])
				s.patched[n] = &again
			}
		}
	}
}

// RemoveOwners deletes objects with dependents and without owners, chosen at random, and returns how many. These deletions
// are not counted.
func (s *Store) RemoveOwners(count int, random *rand.Rand) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := 0
	var owners []*cohort
	all := 0
	for _, c := range s.cohorts {
		if c.owner == nil && len(c.children) > 0 {
			owners = append(owners, c)
			all += c.count
		}
	}
	for range count {
		i := random.IntN(all)
		for _, c := range owners {
			if i < c.count {
				if _, gone := s.deleted[c.first+Number(i)]; !gone {
					s.removeLocked(c.first + Number(i))
					removed++
				}
				break
			}
			i -= c.count
		}
	}
	return removed
}
