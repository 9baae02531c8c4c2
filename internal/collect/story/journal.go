package story

import (
	"math"
	"slices"
	"time"
)

// Position is how far a reader has read in a story: the number of changes that the reader knows.
type Position int

// End is the position of a reader who wants no objects.
const End Position = math.MaxInt

// journal lists the changed entries of a story, in the order of their changes. It is short: a reader who is too far
// behind reads all entries.
type journal struct {
	places  []int32 // of the entries in the story
	dropped int     // the number of earlier changes, whose places are not kept
}

// add adds a change. entries is the number of entries of the story.
func (j *journal) add(place, entries int) {
	j.places = append(j.places, int32(place))
	if len(j.places) > 4*entries+64 {
		j.dropped += len(j.places)
		j.places = j.places[:0]
	}
}

// end is the position of a reader who knows all changes.
func (j *journal) end() Position { return Position(j.dropped + len(j.places)) }

// since returns the places of the entries that have changed since a position, each once and in order; false if any
// entry may have changed.
func (j *journal) since(p Position) ([]int32, bool) {
	if p == 0 || int(p) < j.dropped {
		return nil, false
	}
	places := slices.Clone(j.places[min(len(j.places), int(p)-j.dropped):])
	slices.Sort(places)
	return slices.Compact(places), true
}

// rateWindow is the time over which the rate is measured, in seconds.
const rateWindow = 5

// rate counts the removed objects of the last seconds.
type rate struct {
	counts [rateWindow]int // by second, up to second
	second int64
}

// add counts an object that is removed now.
func (r *rate) add(now time.Time) {
	r.advance(now)
	r.counts[r.second%rateWindow]++
}

// merge adds the counts of another rate.
func (r *rate) merge(from *rate, now time.Time) {
	r.advance(now)
	from.advance(now)
	for n := range from.counts {
		r.counts[n] += from.counts[n]
	}
}

// perSecond returns the number of removed objects per second.
func (r *rate) perSecond(now time.Time) float64 {
	r.advance(now)
	sum := 0
	for _, n := range r.counts {
		sum += n
	}
	return float64(sum) / rateWindow
}

// advance drops counts that are older than the window.
func (r *rate) advance(now time.Time) {
	second := now.Unix()
	for n := max(r.second+1, second-rateWindow+1); n <= second; n++ {
		r.counts[n%rateWindow] = 0
	}
	r.second = max(r.second, second)
}
