package preview

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// schedule is one order in which the actors may take turns.
type schedule struct {
	patient bool // all actors finish between two requests
	late    bool // the collector works only when the other actors are idle
	reverse bool // the later UIDs come first
	between bool // the collector works between the DELETEs of other controllers
	// seed is for a collector that takes some of its keys, in random order; zero for a collector that takes all.
	seed uint64
	// single is true for a collector that takes one key at a time, and some objects always later than others.
	single bool
}

// schedules returns the schedules that Predict always simulates for a number of requests. The first one makes the
// prediction: a user deletes several objects without waiting between them. A collector may be as quick.
func schedules(requests int) []schedule {
	all := []schedule{
		{},
		{late: true},
		{reverse: true},
		{late: true, reverse: true},
		{between: true},
		{between: true, reverse: true},
		{seed: 1},
		{seed: 2, between: true},
		{seed: 3, between: true},
	}
	if requests > 1 {
		all = append(all, schedule{patient: true}, schedule{patient: true, reverse: true}, schedule{patient: true, seed: 4})
	}
	return all
}

const (
	// mostRandom is the number of additional random schedules: with them, none of 1500 random cases has a race that
	// only one of 100 others shows (TestRacesAreNamed with -rapid.checks=1500).
	mostRandom = 48
	// randomObjects bounds the objects of all random plays together: a large deletion takes long enough to simulate
	// without them.
	randomObjects = 10_000
	// singleObjects bounds the objects of a play in which the collector takes one key at a time.
	singleObjects = 100
)

// randomSchedules returns the additional schedules for a play with this number of objects.
func randomSchedules(objects int) []schedule {
	all := make([]schedule, min(mostRandom, randomObjects/max(objects, 1)))
	for n := range all {
		all[n] = randomSchedule(uint64(n) + 5)
		all[n].single = all[n].single && objects <= singleObjects
	}
	return all
}

// randomSchedule returns one of 24 kinds of schedules, with a seed.
func randomSchedule(seed uint64) schedule {
	return schedule{seed: seed, single: seed%3 == 0, between: seed%2 == 0, patient: seed%4 > 1, late: seed%8 > 5}
}

// take returns the keys of the collector's next turn.
func (s schedule) take(queue map[ownership.UID]bool) []ownership.UID {
	turn := make([]ownership.UID, 0, len(queue))
	for uid := range queue {
		turn = append(turn, uid)
	}
	if s.single && len(turn) > 0 {
		return []ownership.UID{slices.MinFunc(turn, s.byRank)}
	}
	s.sort(turn)
	if s.seed != 0 {
		turn = turn[:(len(turn)+1)/2]
	}
	return turn
}

// sort puts objects into the order of processing.
func (s schedule) sort(uids []ownership.UID) {
	slices.Sort(uids)
	switch {
	case s.reverse:
		slices.Reverse(uids)
	case s.single:
		slices.SortFunc(uids, s.byRank)
	case s.seed != 0:
		shuffle(uids, s.seed)
	}
}

// shuffle puts objects into a random order, which depends only on the seed and their number (SplitMix64).
func shuffle(uids []ownership.UID, seed uint64) {
	state := seed<<32 ^ uint64(len(uids))
	for n := len(uids) - 1; n > 0; n-- {
		state += 0x9e3779b97f4a7c15
		z := (state ^ state>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		other := (z ^ z>>31) % uint64(n+1)
		uids[n], uids[other] = uids[other], uids[n]
	}
}

func (s schedule) byRank(a, b ownership.UID) int { return cmp.Compare(s.rank(a), s.rank(b)) }

// rank is random, but always the same for an object.
func (s schedule) rank(uid ownership.UID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64([]byte(uid), s.seed)) // it does not fail
	return h.Sum64()
}

// compare adds the objects that ended differently in another play of the same requests to races.
func (p *play) compare(other *play, races map[ownership.UID]bool) {
	for uid, o := range p.objects {
		if !o.endsAs(other.objects[uid]) {
			races[uid] = true
		}
	}
	for uid, o := range other.objects {
		if !o.endsAs(p.objects[uid]) {
			races[uid] = true
		}
	}
}

// endsAs reports whether two copies of an object end alike. A copy that was not loaded is unchanged.
func (o *object) endsAs(other *object) bool {
	if other == nil {
		return !o.changed()
	}
	return o.removed == other.removed && (o.removed || o.deleting == other.deleting &&
		slices.Equal(o.now.Finalizers, other.now.Finalizers) && slices.Equal(o.now.Owners, other.now.Owners))
}

// changed reports whether anything happened to the object.
func (o *object) changed() bool {
	return o.removed || o.deleting != (o.Phase != ownership.Active) ||
		!slices.Equal(o.now.Finalizers, o.Finalizers) || !slices.Equal(o.now.Owners, o.Owners)
}
