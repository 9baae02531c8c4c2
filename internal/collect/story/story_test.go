package story

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
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
//	refused OBJECT … policy=NAME, accepted NAME, spared NAME
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
			case "refused":
				last := len(words) - 1
				b.Refused(new(objectOf(append(words[1:last:last], "active"))), "", refusal.Refusal{
					By: refusal.ByPolicy, Name: strings.TrimPrefix(words[last], "policy="), Binding: "all", Message: "it is kept",
				}, now)
			case "accepted", "spared":
				b.RefusalEnded(ownership.UID(words[1]), words[0] == "spared", now)
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
	switch {
	case o.Refusal == nil:
	case o.Refusal.Ended == nil:
		state += " refused"
	default:
		state += " was refused"
	}
	if o.In != "" {
		state += " in " + string(o.In)
	}
	return state
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
