package story

import (
	"cmp"
	"slices"
)

// mostRecent is the number of hashes that furtherMembers keeps in a map.
const mostRecent = 4096

// furtherMembers has the stories of the objects that have no entry, by a hash of their UID. All but the latest are in
// sorted runs, each at least twice as long as the next: an object takes 12 bytes. In a map it would take three times as
// much, and the map would never shrink.
type furtherMembers struct {
	recent  map[uint64]*story
	runs    []run    // the longest first
	stories []*story // by number; nil: the number is free
}

// run has hashes in order, each with the number of its story.
type run struct {
	hashes  []uint64
	stories []uint32
}

func newFurtherMembers() furtherMembers { return furtherMembers{recent: map[uint64]*story{}} }

// len returns the number of objects.
func (f *furtherMembers) len() int {
	n := len(f.recent)
	for _, r := range f.runs {
		n += len(r.hashes)
	}
	return n
}

// find returns the story of an object, or nil.
func (f *furtherMembers) find(hash uint64) *story {
	if s := f.recent[hash]; s != nil {
		return s
	}
	for _, r := range f.runs {
		if at, found := slices.BinarySearch(r.hashes, hash); found {
			return f.stories[r.stories[at]]
		}
	}
	return nil
}

// add adds an object that has no story yet.
func (f *furtherMembers) add(hash uint64, s *story) {
	f.recent[hash] = s
	if len(f.recent) < mostRecent {
		return
	}
	latest := f.runOf(f.recent)
	clear(f.recent)
	for n := len(f.runs); n > 0 && len(f.runs[n-1].hashes) < 2*len(latest.hashes); n-- {
		latest = merge(f.runs[n-1], latest)
		f.runs = f.runs[:n-1]
	}
	f.runs = append(f.runs, latest)
}

func (f *furtherMembers) runOf(members map[uint64]*story) run {
	r := run{make([]uint64, 0, len(members)), make([]uint32, len(members))}
	for hash := range members {
		r.hashes = append(r.hashes, hash)
	}
	slices.Sort(r.hashes)
	for at, hash := range r.hashes {
		r.stories[at] = f.numberOf(members[hash])
	}
	return r
}

// numberOf returns the number of a story. It searches the stories: few have thousands of objects.
func (f *furtherMembers) numberOf(s *story) uint32 {
	at := slices.Index(f.stories, s)
	if at < 0 {
		at = slices.Index(f.stories, nil)
	}
	if at < 0 {
		at = len(f.stories)
		f.stories = append(f.stories, nil)
	}
	f.stories[at] = s
	return uint32(at)
}

// merge returns the elements of two runs.
func merge(a, b run) run {
	n := len(a.hashes) + len(b.hashes)
	all := run{make([]uint64, 0, n), make([]uint32, 0, n)}
	for len(a.hashes) > 0 && len(b.hashes) > 0 {
		if cmp.Less(b.hashes[0], a.hashes[0]) {
			a, b = b, a
		}
		all.hashes, all.stories = append(all.hashes, a.hashes[0]), append(all.stories, a.stories[0])
		a = run{a.hashes[1:], a.stories[1:]}
	}
	all.hashes, all.stories = append(all.hashes, a.hashes...), append(all.stories, a.stories...)
	all.hashes, all.stories = append(all.hashes, b.hashes...), append(all.stories, b.stories...)
	return all
}

// drop drops the objects of a story.
func (f *furtherMembers) drop(s *story) {
	for hash, of := range f.recent {
		if of == s {
			delete(f.recent, hash)
		}
	}
	at := slices.Index(f.stories, s)
	if at < 0 {
		return
	}
	f.stories[at] = nil
	runs := f.runs
	f.runs = nil
	for _, r := range runs {
		if r = r.without(uint32(at)); len(r.hashes) > 0 {
			f.runs = append(f.runs, r)
		}
	}
	slices.SortStableFunc(f.runs, func(a, b run) int { return cmp.Compare(len(b.hashes), len(a.hashes)) })
}

// without returns a run of its own memory without the objects of a story.
func (r run) without(number uint32) run {
	n := 0
	for _, of := range r.stories {
		if of != number {
			n++
		}
	}
	left := run{make([]uint64, 0, n), make([]uint32, 0, n)}
	for at, of := range r.stories {
		if of != number {
			left.hashes, left.stories = append(left.hashes, r.hashes[at]), append(left.stories, of)
		}
	}
	return left
}

// move moves the objects of a story to another one.
func (f *furtherMembers) move(from, to *story) {
	for hash, s := range f.recent {
		if s == from {
			f.recent[hash] = to
		}
	}
	at := slices.Index(f.stories, from)
	if at < 0 {
		return
	}
	number := f.numberOf(to)
	for _, r := range f.runs {
		for n, of := range r.stories {
			if of == uint32(at) {
				r.stories[n] = number
			}
		}
	}
	f.stories[at] = nil
}
