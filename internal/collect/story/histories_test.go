package story

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// check compares the counts of each story with its objects, and that each object is in one story.
func check(t *testing.T, b *Book, now time.Time) {
	t.Helper()
	seen := map[ownership.UID]ownership.UID{}
	singles, total := 0, 0
	for _, s := range b.List(all, now) {
		_, objects, _, found := b.Story(s.ID, 0, all, now)
		if !found {
			t.Fatalf("story %s is not found", s.ID)
		}
		var gone, waiting, kept int
		for _, o := range objects {
			switch {
			case o.Gone != nil:
				gone++
			case o.Fate == FateKept:
				kept++
			case o.Marked != nil || o.Refusal != nil && o.Refusal.Ended == nil:
				waiting++
			}
			if other, twice := seen[o.UID]; twice && o.Fate == "" {
				t.Errorf("%s is in the stories %s and %s", o.Ref, other, s.ID)
			}
			if o.Fate == "" {
				seen[o.UID] = s.ID
			}
		}
		if beyond := b.shelf.byID[s.ID].further.all; beyond == 0 && (gone != s.Gone || waiting != s.Waiting || kept != s.Kept) {
			t.Errorf("story %s counts %d gone, %d waiting, %d kept; its objects %d, %d, %d", s.ID, s.Gone, s.Waiting, s.Kept, gone, waiting, kept)
		}
		if len(objects) == 1 {
			singles++
		}
		total += len(objects)
	}
	checkCounts(t, b)
	if b.membership.further.len() == 0 { // a reader who may see each object gets the same as one without restrictions
		if diff := cmp.Diff(b.List(nil, now), b.List(all, now)); diff != "" {
			t.Errorf("-without restrictions +with all rights:\n%s", diff)
		}
	}
	for _, of := range slices.Concat(b.membership.further.stories, slices.Collect(maps.Values(b.membership.further.recent))) {
		if of != nil && !slices.Contains(b.shelf.order, of) {
			t.Error("an object belongs to a story that is forgotten")
		}
	}
	if total != b.usage.objects || singles != b.usage.singles && b.limits == bounds() {
		t.Errorf("%d objects, %d stories of one; the book counts %d and %d", total, singles, b.usage.objects, b.usage.singles)
	}
}

// checkCounts compares what is counted along with what is there.
func checkCounts(t *testing.T, b *Book) {
	t.Helper()
	bytes := 0
	for _, s := range b.shelf.order {
		var counts [states]int
		for _, e := range s.entries {
			counts[e.state()]++
			before := e.bytes
			b.usage.count(e)
			if e.bytes != before {
				t.Errorf("%s has %d bytes, counted as %d", e.Ref, e.bytes, before)
			}
			bytes += e.bytes
		}
		if counts != s.counts {
			t.Errorf("story %s has %v entries by state, counted as %v", s.roots[0].UID, counts, s.counts)
		}
	}
	if bytes != b.usage.bytes {
		t.Errorf("the entries have %d bytes, counted as %d", bytes, b.usage.bytes)
	}
}

// After events in any order, each deleted object is in one story, and a reader who has followed a story has the same
// result as one who reads it at the end.
func TestDeletedObjectIsInOneStoryAfterAnyHistory(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := NewBook()
		if seed%3 == 0 {
			b.limits = limits{stories: 5, singles: 2, objects: 20, bytes: 1 << 20}
		}
		now := start
		follow := map[ownership.UID]*follower{}
		for range 200 {
			now = now.Add(time.Duration(random.IntN(1500)) * time.Millisecond)
			step(b, random, now)
			for _, s := range b.List(all, now) {
				if of := b.shelf.byID[s.ID]; follow[s.ID] == nil || follow[s.ID].of != of { // or begun again, here
					follow[s.ID] = &follower{of: of, known: map[ownership.UID]Object{}}
				}
				if random.IntN(3) == 0 {
					follow[s.ID].read(b, s.ID, now)
				}
			}
			check(t, b, now)
		}
		for _, s := range b.List(all, now) {
			f := follow[s.ID]
			f.read(b, s.ID, now)
			_, objects, _, _ := b.Story(s.ID, 0, all, now)
			for _, o := range objects {
				if got := fmt.Sprintf("%+v", f.known[o.UID]); stateOf(new(f.known[o.UID])) != stateOf(&o) {
					t.Errorf("who follows %s knows of%s %s, and it is%s", s.ID, stateOf(new(f.known[o.UID])), got, stateOf(&o))
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type follower struct {
	of    *story
	at    Position
	known map[ownership.UID]Object
}

func (f *follower) read(b *Book, id ownership.UID, now time.Time) {
	_, objects, next, _ := b.Story(id, f.at, all, now)
	for _, o := range objects {
		f.known[o.UID] = o
	}
	f.at = next
}

// step makes an event happen to one of some objects: an object with an even number owns the next one.
func step(b *Book, random *rand.Rand, now time.Time) {
	n := random.IntN(40)
	o := ownership.Object{UID: ownership.UID(fmt.Sprint(n)), Kind: ownership.Kind{Kind: "Thing"}, Namespace: fmt.Sprint("ns", n%3), Name: fmt.Sprint(n), Phase: ownership.Terminating}
	if n >= 37 {
		o.Kind, o.Namespace, o.Name = ownership.Kind{Kind: "Namespace"}, "", fmt.Sprint("ns", n-37)
	}
	if n > 0 && random.IntN(2) == 0 {
		o.Owners = []ownership.Reference{{UID: ownership.UID(fmt.Sprint(n / 2)), BlockOwnerDeletion: ownership.True}}
	}
	if random.IntN(4) == 0 {
		o.Phase = ownership.Foreground
	}
	switch random.IntN(8) {
	case 0:
		b.Requested(Request{Key: fmt.Sprint(random.IntN(5)), UID: o.UID, By: By{User: "ann"}})
	case 1, 2:
		if random.IntN(4) == 0 {
			o.Phase, o.Protected = ownership.Active, random.IntN(3) > 0
		}
		b.Seen(&o, "", now)
	case 3, 4:
		b.Gone(&o, "", now)
	case 5:
		b.Stayed(refOf(&o, ""), nil, []Ref{{UID: ownership.UID(fmt.Sprint(random.IntN(40))), Kind: "Thing", Name: "x"}}, now)
	case 6:
		b.Refused(&o, "", refusal.Refusal{By: refusal.ByPolicy, Name: "keep", Message: strings.Repeat("m", random.IntN(20))}, now)
	case 7:
		b.RefusalEnded(o.UID, random.IntN(2) == 0, now)
	}
}
