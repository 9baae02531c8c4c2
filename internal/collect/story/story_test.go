package story

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func all(Ref) bool { return true }

// List, Since and Story read a Book that nobody shares.

func (b *Book) reader(sees Sees, now time.Time) Reader {
	return Reader{Sees: sees, Now: now, Read: func(read func(*Book)) { read(b) }}
}

func (b *Book) List(sees Sees, now time.Time) []Summary { return b.reader(sees, now).List() }

func (b *Book) Since(change uint64, sees Sees, now time.Time) ([]Summary, []ownership.UID, uint64) {
	return b.reader(sees, now).Since(change)
}

func (b *Book) Story(id ownership.UID, since Position, sees Sees, now time.Time) (Summary, []Object, Position, bool) {
	return b.reader(sees, now).Story(id, since)
}

// objectOf parses "Kind.group[/namespace]/name", and options: owner=NAME, blocking=NAME, foreground, orphan,
// finalizer=NAME, due=SECONDS.
func objectOf(words []string) ownership.Object {
	parts := strings.Split(words[0], "/")
	kind, group, _ := strings.Cut(parts[0], ".")
	o := ownership.Object{Kind: ownership.Kind{Group: group, Kind: kind}, Name: parts[len(parts)-1], Phase: ownership.Terminating}
	if len(parts) == 3 {
		o.Namespace = parts[1]
	}
	o.UID = ownership.UID(o.Name)
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "owner", "blocking":
			r := ownership.Reference{APIVersion: "v1", Kind: "Thing", Name: value, UID: ownership.UID(value)}
			if name == "blocking" {
				r.BlockOwnerDeletion = ownership.True
			}
			o.Owners = append(o.Owners, r)
		case "foreground":
			o.Phase, o.Finalizers = ownership.Foreground, append(o.Finalizers, ownership.FinalizerForeground)
		case "finalizer":
			o.Finalizers = append(o.Finalizers, value)
		case "due":
			seconds := 0
			_, _ = fmt.Sscan(value, &seconds)
			o.Due = start.Unix() + int64(seconds)
		case "active":
			o.Phase = ownership.Active
		case "protected":
			o.Phase, o.Protected = ownership.Active, true
		}
	}
	return o
}

func refTo(text string) Ref {
	o := objectOf([]string{text})
	return refOf(&o, "")
}

// TestHistoriesMakeStories plays histories: a line is a second apart from the one before.
//
//	asked NAME by=USER [key=KEY] [policy=POLICY]
//	seen OBJECT …, gone OBJECT …, stayed OBJECT lost=OBJECT [kept=OBJECT], wait
func TestHistoriesMakeStories(t *testing.T) {
	datadriven.RunTest(t, "testdata/stories", func(t *testing.T, d *datadriven.TestData) string {
		b := NewBook()
		now := start
		for line := range strings.Lines(d.Input) {
			words := strings.Fields(line)
			switch words[0] {
			case "asked":
				r := Request{UID: ownership.UID(words[1]), Key: words[1]}
				for _, word := range words[2:] {
					name, value, _ := strings.Cut(word, "=")
					switch name {
					case "by":
						r.By.User = value
					case "key":
						r.Key = value
					case "policy":
						r.Policy = value
					}
				}
				b.Requested(r)
				continue
			case "seen":
				b.Seen(new(objectOf(words[1:])), "", now)
			case "gone":
				b.Gone(new(objectOf(words[1:])), "", now)
			case "stayed":
				var kept, lost []Ref
				for _, word := range words[2:] {
					name, value, _ := strings.Cut(word, "=")
					if name == "lost" {
						lost = append(lost, refTo(value))
					} else {
						kept = append(kept, refTo(value))
					}
				}
				b.Stayed(refTo(words[1]), kept, lost, now)
			case "wait":
			default:
				t.Fatalf("%s: %q", d.Pos, line)
			}
			now = now.Add(time.Second)
		}
		check(t, b, now)
		var text strings.Builder
		for _, s := range b.List(all, now) {
			_, objects, _, _ := b.Story(s.ID, 0, all, now)
			text.WriteString(s.Text(objects, now))
			for _, o := range objects {
				fmt.Fprintf(&text, "  %s%s\n", o.Ref, stateOf(&o))
			}
		}
		return text.String()
	})
}

func stateOf(o *Object) string {
	var state string
	switch {
	case o.Gone != nil:
		state = " gone"
	case o.Protected:
		state = " protected"
	case o.Fate != "":
		state = " kept"
	case o.Marked != nil:
		state = " waiting"
	}
	if o.In != "" {
		state += " in " + string(o.In)
	}
	return state
}

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
			case o.Marked != nil:
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
	if len(b.membership.further) == 0 { // a reader who may see each object gets the same as one without restrictions
		if diff := cmp.Diff(b.List(nil, now), b.List(all, now)); diff != "" {
			t.Errorf("-without restrictions +with all rights:\n%s", diff)
		}
	}
	for _, of := range b.membership.further {
		if !slices.Contains(b.shelf.order, of) {
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
	switch random.IntN(6) {
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
	}
}

// Stories beyond the limits are forgotten, single objects and the oldest first, but never active stories.
func TestOldestAndSingleStoriesAreForgottenFirst(t *testing.T) {
	b := NewBook()
	b.limits = limits{stories: 4, singles: 2, objects: 1000, bytes: 1 << 20}
	now := start
	b.Seen(new(objectOf([]string{"Widget.x/shop/open", "finalizer=x/hold"})), "", now)
	for n := range 10 {
		now = now.Add(2 * time.Second)
		b.Gone(new(objectOf([]string{fmt.Sprintf("Pod/shop/single-%d", n)})), "", now)
		b.Seen(new(objectOf([]string{fmt.Sprintf("Job.batch/shop/job-%d", n)})), "", now)
		b.Gone(new(objectOf([]string{fmt.Sprintf("Pod/shop/pod-%d", n), fmt.Sprintf("owner=job-%d", n)})), "", now)
		b.Gone(new(objectOf([]string{fmt.Sprintf("Job.batch/shop/job-%d", n)})), "", now)
	}
	var ids []string
	for _, s := range b.List(all, now.Add(time.Minute)) {
		ids = append(ids, string(s.ID))
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); !strings.Contains(got, "open") || !strings.Contains(got, "job-9") || strings.Contains(got, "job-1 ") || len(ids) > 6 {
		t.Errorf("kept: %s", got)
	}
	if len(b.membership.members) > 12 {
		t.Errorf("%d objects are remembered", len(b.membership.members))
	}
	_, removed, _ := b.Since(1, all, now)
	if len(removed) == 0 {
		t.Error("nobody is told that stories are forgotten")
	}
}

// A namespace that has the name of one that was just removed has stories of its own.
func TestNamespaceOfARemovedNameHasItsOwnStories(t *testing.T) {
	b := NewBook()
	space := ownership.Object{UID: "former", Kind: ownership.Kind{Kind: "Namespace"}, Name: "shop", Phase: ownership.Terminating}
	config := func(uid ownership.UID) *ownership.Object {
		return &ownership.Object{UID: uid, Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: string(uid)}
	}
	b.Gone(config("ahead-of-its-time"), "present", start)
	b.Seen(&space, "", start)
	b.Gone(&space, "", start)
	for uid, home := range map[ownership.UID]ownership.UID{"late": "former", "doubtful": "", "new": "present"} {
		b.Gone(config(uid), home, start.Add(time.Second))
	}
	for story, want := range map[ownership.UID]int{"former": 3, "new": 1, "ahead-of-its-time": 1} {
		if _, objects, _, _ := b.Story(story, 0, all, start); len(objects) != want {
			t.Errorf("the story of %s has %d objects, want %d: %v", story, len(objects), want, objects)
		}
	}
	check(t, b, start.Add(time.Second))
}

// Readers get nothing that they may not see, neither as an object nor in words.
func TestReadersGetNoHiddenObjects(t *testing.T) {
	b := NewBook()
	b.Seen(new(objectOf([]string{"Deployment.apps/shop/web", "foreground"})), "", start)
	b.Seen(new(objectOf([]string{"Secret/shop/password", "owner=web", "finalizer=x/hold"})), "", start)
	b.Stayed(refTo("ConfigMap/shop/settings"), []Ref{refTo("Secret/shop/other-password")}, []Ref{refTo("Deployment.apps/shop/web")}, start)
	b.Seen(new(objectOf([]string{"Secret/shop/alone", "finalizer=x/hold"})), "", start)
	sees := func(object Ref) bool { return object.Kind != "Secret" }
	list := b.List(sees, start)
	if len(list) != 1 || list[0].WaitsFor == "" || list[0].Waiting != 1 {
		t.Fatalf("%+v", list)
	}
	s, objects, _, _ := b.Story("web", 0, sees, start)
	if text := fmt.Sprintf("%+v %+v %s", list, objects, s.Text(objects, start)); strings.Contains(text, "password") || strings.Contains(text, "Secret") {
		t.Errorf("a secret is named: %s", text)
	}
	if _, _, _, found := b.Story("alone", 0, sees, start); found {
		t.Error("the story of a secret is found")
	}
}

// Objects that a list lacks were removed while no watch was open.
func TestObjectsThatAListLacksAreGone(t *testing.T) {
	b := NewBook()
	b.Seen(new(objectOf([]string{"Pod/shop/p"})), "", start)
	b.Seen(new(objectOf([]string{"Pod/shop/q"})), "", start)
	b.Listed(ownership.Kind{Kind: "Pod"}, func(uid ownership.UID) bool { return uid == "q" }, start.Add(time.Second))
	for id, want := range map[ownership.UID]bool{"p": true, "q": false} {
		if s, _, _, _ := b.Story(id, 0, all, start.Add(time.Minute)); s.Done != want {
			t.Errorf("%s: %+v", id, s)
		}
	}
	check(t, b, start.Add(time.Minute))
}

// BenchmarkCascade records a cascade of 10 000 objects, which are marked and removed.
func BenchmarkCascade(b *testing.B) {
	objects := make([]ownership.Object, 10_000)
	for n := range objects {
		objects[n] = ownership.Object{
			UID: ownership.UID(fmt.Sprintf("uid-%d", n)), Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: fmt.Sprint(n), Phase: ownership.Terminating,
			Owners: []ownership.Reference{{UID: "owner"}},
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		book := NewBook()
		book.Gone(&ownership.Object{UID: "owner", Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: "owner"}, "", start)
		for n := range objects {
			book.Seen(&objects[n], "", start)
			book.Gone(&objects[n], "", start)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20_000, "ns/event")
}

// The texts of objects in stories are bounded in bytes; the other objects are counted.
func TestStoriesAreBoundedInBytes(t *testing.T) {
	b := NewBook()
	b.limits.bytes = 1 << 20
	now := time.Unix(1_700_000_000, 0)
	long := strings.Repeat("x", 1024)
	var owners []ownership.Reference
	for n := range 300 {
		owners = append(owners, ownership.Reference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: ownership.UID(fmt.Sprint("owner-", n))})
	}
	root := ownership.Object{UID: "root", Kind: ownership.Kind{Kind: "Namespace"}, Name: "space", Phase: ownership.Terminating}
	b.Seen(&root, "", now)
	for n := range 2000 {
		o := ownership.Object{
			UID: ownership.UID(fmt.Sprint(n)), Kind: ownership.Kind{Kind: "Pod"}, Namespace: "space", Name: fmt.Sprint(n, long),
			Phase: ownership.Terminating, Finalizers: []string{long}, Owners: owners,
		}
		b.Seen(&o, "", now)
	}
	s := b.shelf.byID["root"]
	if b.usage.bytes > 1<<20+4096 || s.size() != 2001 || s.further.all == 0 {
		t.Errorf("%d bytes, %d entries and %d beyond", b.usage.bytes, len(s.entries), s.further.all)
	}
	sum := 0
	for _, e := range s.entries {
		if len(e.owners) > mostOwners {
			t.Fatalf("%d owners of %.10s", len(e.owners), e.Name)
		}
		sum += e.bytes
	}
	if sum != b.usage.bytes {
		t.Errorf("%d bytes are counted, there are %d", b.usage.bytes, sum)
	}
	b.drop(0)
	if b.usage.bytes != 0 {
		t.Errorf("%d bytes are left without a story", b.usage.bytes)
	}
	for n := range 3 {
		b.Requested(Request{Key: strings.Repeat("k", 1<<20), UID: ownership.UID(fmt.Sprint(n)), By: By{User: strings.Repeat("u", 1<<20), Agent: strings.Repeat("a", 1<<20)}})
	}
	for _, r := range b.requests.recent {
		if n := len(r.Key) + len(r.By.User) + len(r.By.Agent); n > 1024 {
			t.Errorf("a request of %d bytes is kept", n)
		}
	}
}
