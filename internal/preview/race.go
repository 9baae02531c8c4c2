package preview

import (
	"math/rand/v2"
	"slices"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// schedule is one way in which the actors may take turns.
type schedule struct {
	patient bool // everything comes to rest between two requests
	late    bool // the collector works only when nobody else has anything to do
	reverse bool // the later UIDs come first
	between bool // the collector works between the DELETEs of other controllers
	// seed of a collector that takes some of its keys, in any order; zero for one that takes all.
	seed uint64
}

// schedules are those that are played for a number of requests. The first is the one that is told: a
// person who deletes several objects waits for no rest between them. A collector may be as quick.
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

// take returns the keys of the collector's next turn.
func (s schedule) take(queue map[ownership.UID]bool) []ownership.UID {
	turn := make([]ownership.UID, 0, len(queue))
	for uid := range queue {
		turn = append(turn, uid)
	}
	s.sort(turn)
	if s.seed != 0 {
		turn = turn[:(len(turn)+1)/2]
	}
	return turn
}

// sort puts objects into the order in which they are dealt with.
func (s schedule) sort(uids []ownership.UID) {
	slices.Sort(uids)
	switch {
	case s.reverse:
		slices.Reverse(uids)
	case s.seed != 0:
		random := rand.New(rand.NewPCG(s.seed, uint64(len(uids))))
		random.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	}
}

// compare adds to races what ended otherwise in another play of the same requests.
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

// endsAs reports whether two copies of an object end alike. One that was not loaded is as it was.
func (o *object) endsAs(other *object) bool {
	if other == nil {
		return !o.changed()
	}
	return o.gone == other.gone && (o.gone || o.deleting == other.deleting &&
		slices.Equal(o.now.Finalizers, other.now.Finalizers) && slices.Equal(o.now.Owners, other.now.Owners))
}

// changed reports whether anything happened to the object.
func (o *object) changed() bool {
	return o.gone || o.deleting != (o.Phase != ownership.Active) ||
		!slices.Equal(o.now.Finalizers, o.Finalizers) || !slices.Equal(o.now.Owners, o.Owners)
}
