package anomaly

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// script feeds a detector. The resourceVersion of each write is one more than that of the one before.
type script struct {
	*Detector

	version uint64
	now     time.Time
}

const (
	sites    = "sites.example.com"
	children = "configmaps"
)

var (
	operator = Client{"system:admin", "operator"}
	somebody = Client{"system:admin", "kubectl"}
)

func newScript() *script {
	return &script{Detector: NewDetector(), version: 100, now: time.Unix(0, 0)}
}

// object returns the content of an object.
func object(metadata map[string]any, more ...any) map[string]any {
	o := map[string]any{"metadata": metadata}
	for i := 0; i < len(more); i += 2 {
		o[more[i].(string)] = more[i+1]
	}
	return o
}

// ownedBy returns the metadata of a child with a generated name.
func ownedBy(uid string) map[string]any {
	return map[string]any{
		"generateName": "child-", "labels": map[string]any{"part": "config"},
		"ownerReferences": []any{map[string]any{"uid": uid, "controller": true}},
	}
}

// write carries out a write, and returns its resourceVersion. The UID begins with the object's name.
func (s *script) write(c Client, verb string, n Name, uid string, content map[string]any) uint64 {
	s.version++
	s.Wrote(Write{Time: s.now, Client: c, Verb: verb, Object: n, UID: uid, Version: s.version, Content: content, Answered: true})
	return s.version
}

// remove ends an object.
func (s *script) remove(c Client, verb string, n Name, uid string) {
	s.version++
	s.Wrote(Write{Time: s.now, Client: c, Verb: verb, Object: n, UID: uid, Version: s.version, Gone: true, Answered: true})
}

// watches opens watches of the operator, which have shown the present state: number 1 of children, number 2 of sites.
func (s *script) watches() {
	s.Watches(1, operator, Scope{children, ""}, s.version)
	s.Watches(2, operator, Scope{sites, ""}, s.version)
}

func (s *script) refused(verb string, n Name) {
	s.Refused(Refusal{Time: s.now, Client: operator, Verb: verb, Object: n, Code: 409})
}

// finds checks which kinds of anomalies there are, and a part of the text of the last one.
func (s *script) finds(t *testing.T, text string, kinds ...Kind) {
	t.Helper()
	found, _ := s.Found()
	var got []Kind
	for _, a := range found {
		got = append(got, a.Kind)
	}
	if !slices.Equal(got, kinds) {
		t.Fatalf("found %v, want %v", found, kinds)
	}
	if len(found) > 0 && !strings.Contains(found[len(found)-1].Text, text) {
		t.Errorf("the text is %q, want %q in it", found[len(found)-1].Text, text)
	}
}

// A creator that has written to the owner in between, without the name of the first child, has begun anew.
func TestDuplicateChild(t *testing.T) {
	site, first, second := Name{sites, "shop", "a"}, Name{children, "shop", "child-1"}, Name{children, "shop", "child-2"}
	for name, test := range map[string]struct {
		between func(s *script, first uint64)
		found   bool
	}{
		"nothing in between: a creator of two": {func(*script, uint64) {}, false},
		"the owner's status": {func(s *script, _ uint64) {
			s.write(operator, "update", site, "site", object(map[string]any{}, "status", "progressing"))
		}, true},
		"the child's name in the owner's status": {func(s *script, _ uint64) {
			s.write(operator, "update", site, "site", object(map[string]any{}, "status", "made child-1"))
		}, false},
		"the status of somebody else": {func(s *script, _ uint64) {
			s.write(somebody, "update", site, "site", object(map[string]any{}, "status", "progressing"))
		}, false},
		"a new specification": {func(s *script, _ uint64) {
			s.write(operator, "update", site, "site", object(map[string]any{"generation": int64(2)}, "status", "progressing"))
		}, false},
		"the watch has shown it": {func(s *script, first uint64) {
			s.write(operator, "update", site, "site", object(map[string]any{}, "status", "progressing"))
			s.Shows(1, first)
		}, false},
		"it was read": {func(s *script, first uint64) {
			s.write(operator, "update", site, "site", object(map[string]any{}, "status", "progressing"))
			s.Read(operator, "child-1", first)
		}, false},
		"it was removed": {func(s *script, _ uint64) {
			s.write(operator, "update", site, "site", object(map[string]any{}, "status", "progressing"))
			s.remove(somebody, "delete", first, "child-1")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.watches()
			s.write(somebody, "create", site, "site", object(map[string]any{}))
			version := s.write(operator, "create", first, "child-1", object(ownedBy("site")))
			test.between(s, version)
			s.write(operator, "create", second, "child-2", object(ownedBy("site")))
			if test.found {
				s.finds(t, "configmaps shop/child-1 (resourceVersion 102) already: its watch had come to resourceVersion 100", DuplicateChild)
			} else {
				s.finds(t, "")
			}
		})
	}
}

// A client that removes the second child once its watch has shown both takes the creation back.
func TestSurplusChild(t *testing.T) {
	site, first, second := Name{sites, "shop", "a"}, Name{children, "shop", "child-1"}, Name{children, "shop", "child-2"}
	for name, test := range map[string]struct {
		before func(s *script)
		found  bool
	}{
		"nobody has touched them":   {func(s *script) { s.Shows(1, s.version) }, true},
		"the watch is still behind": {func(*script) {}, false},
		"a child has run": {func(s *script) {
			s.write(Client{}, "update", second, "child-2", object(ownedBy("site"), "status", "ready"))
			s.Shows(1, s.version)
		}, false},
		"the owner wants fewer": {func(s *script) {
			s.write(somebody, "update", site, "site", object(map[string]any{"generation": int64(2)}))
			s.Shows(1, s.version)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.watches()
			s.write(somebody, "create", site, "site", object(map[string]any{}))
			s.write(operator, "create", first, "child-1", object(ownedBy("site")))
			s.write(operator, "create", second, "child-2", object(ownedBy("site")))
			test.before(s)
			s.remove(operator, "delete", second, "child-2")
			if test.found {
				s.finds(t, "it deleted one of the two at resourceVersion 104", DuplicateChild)
			} else {
				s.finds(t, "")
			}
		})
	}
}

// A client that knows only the predecessor of an object means that one.
func TestSuccessorDeleted(t *testing.T) {
	name := Name{children, "shop", "a"}
	run := func(creator Client, before func(s *script)) *script {
		s := newScript()
		s.watches()
		s.Shows(1, s.write(creator, "create", name, "first", object(map[string]any{})))
		s.remove(somebody, "delete", name, "first")
		s.write(creator, "create", name, "second", object(map[string]any{}))
		before(s)
		s.remove(operator, "delete", name, "second")
		return s
	}
	run(somebody, func(*script) {}).finds(t, "configmaps shop/a (resourceVersion 103), and knew only an earlier object", SuccessorDeleted)
	run(operator, func(*script) {}).finds(t, "")
	run(somebody, func(s *script) { s.Shows(1, s.version) }).finds(t, "")
	run(somebody, func(s *script) { s.Read(operator, "second", s.version) }).finds(t, "")
}

// A client that looks for children without owners has to know the owners.
func TestLiveChildDeleted(t *testing.T) {
	site, child := Name{sites, "shop", "a"}, Name{children, "shop", "child-1"}
	run := func(before func(s *script)) *script {
		s := newScript()
		s.watches()
		s.write(somebody, "create", site, "site", object(map[string]any{}))
		s.Shows(1, s.write(somebody, "create", child, "child-1", object(ownedBy("site"))))
		before(s)
		s.remove(operator, "delete", child, "child-1")
		return s
	}
	run(func(*script) {}).finds(t, "whose owner exists: sites.example.com shop/a (resourceVersion 101); its watch of sites.example.com had come to resourceVersion 100", LiveChildDeleted)
	run(func(s *script) { s.Shows(2, s.version) }).finds(t, "")
	run(func(s *script) { s.remove(somebody, "delete", site, "site") }).finds(t, "")
	run(func(s *script) {
		s.write(somebody, "delete", site, "site", object(map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}))
	}).finds(t, "")
}

// A client may remove what it has seen.
func TestEntryLost(t *testing.T) {
	site := Name{sites, "shop", "a"}
	run := func(adder Client, before func(s *script)) *script {
		s := newScript()
		s.watches()
		s.Shows(2, s.write(somebody, "create", site, "site", object(map[string]any{})))
		s.write(adder, "patch", site, "site", object(map[string]any{"finalizers": []any{"example.com/guard"}}))
		before(s)
		s.write(operator, "patch", site, "site", object(map[string]any{"annotations": map[string]any{"seen": "yes"}}))
		return s
	}
	run(somebody, func(*script) {}).finds(t, "the write removed the finalizer example.com/guard, which kubectl had added at resourceVersion 102", EntryLost)
	run(somebody, func(s *script) { s.Shows(2, s.version) }).finds(t, "")
	run(operator, func(*script) {}).finds(t, "")
	run(Client{}, func(*script) {}).finds(t, "")
}

// A client that removes children for a finalizer removes all of them.
func TestFinalizerEarly(t *testing.T) {
	site := Name{sites, "shop", "a"}
	finalized := map[string]any{"finalizers": []any{"example.com/clean"}}
	part := object(map[string]any{"labels": map[string]any{"site": "a"}})
	run := func(before func(s *script)) *script {
		s := newScript()
		s.watches()
		s.write(somebody, "create", site, "site", object(finalized))
		s.Shows(1, s.write(operator, "create", Name{children, "shop", "seen"}, "seen", part))
		s.write(operator, "create", Name{children, "shop", "late"}, "late", part)
		s.write(somebody, "delete", site, "site", object(map[string]any{
			"finalizers": []any{"example.com/clean"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
		}))
		before(s)
		s.remove(operator, "patch", site, "site")
		return s
	}
	clean := func(name string) func(s *script) {
		return func(s *script) { s.remove(operator, "delete", Name{children, "shop", name}, name) }
	}
	run(clean("seen")).finds(t, "while configmaps shop/late (resourceVersion 103) is there", FinalizerEarly)
	run(func(s *script) { clean("seen")(s); clean("late")(s) }).finds(t, "")
	run(func(*script) {}).finds(t, "") // a finalizer for something else
	run(func(s *script) { clean("seen")(s); s.Shows(1, s.version) }).finds(t, "")
}

// A client that has a watch learns from it, another one has to read.
func TestConflictRepeated(t *testing.T) {
	site := Name{sites, "shop", "a"}
	conflicts := func(s *script, number int) {
		for range number {
			s.refused("update", site)
			s.now = s.now.Add(2 * reaction)
		}
	}
	t.Run("its watch has shown the change", func(t *testing.T) {
		s := newScript()
		s.watches()
		s.write(somebody, "create", site, "site", object(map[string]any{}))
		conflicts(s, 10)
		s.finds(t, "") // the watch is behind
		s.Shows(2, s.version)
		conflicts(s, mostConflicts)
		s.finds(t, "")
		conflicts(s, 1)
		s.finds(t, "conflict 14 in a row with the same state: its watch had shown that 3m0s before", ConflictRepeated)
	})
	t.Run("a second watch is behind", func(t *testing.T) {
		s := newScript()
		s.watches()
		s.Watches(3, operator, Scope{sites, "shop"}, s.version)
		s.write(somebody, "create", site, "site", object(map[string]any{}))
		s.Shows(2, s.version)
		conflicts(s, 10)
		s.finds(t, "")
		s.Ends(3)
		conflicts(s, 10)
		s.finds(t, "", ConflictRepeated)
	})
	t.Run("its watches begin again", func(t *testing.T) {
		s := newScript()
		s.watches()
		s.Read(operator, "site", s.write(somebody, "create", site, "site", object(map[string]any{})))
		s.write(somebody, "update", site, "site", object(map[string]any{}, "spec", "other"))
		s.Ends(2)
		conflicts(s, 10)
		s.finds(t, "")
	})
	t.Run("without a watch", func(t *testing.T) {
		s := newScript()
		s.Read(operator, "site", s.write(somebody, "create", site, "site", object(map[string]any{})))
		s.write(somebody, "update", site, "site", object(map[string]any{}, "spec", "other"))
		conflicts(s, 2)
		s.Read(operator, "site", s.version)
		conflicts(s, 2)
		s.finds(t, "") // it has read
		s.write(somebody, "update", site, "site", object(map[string]any{}, "spec", "third"))
		conflicts(s, mostConflicts)
		s.finds(t, "it has not read the object in between", ConflictRepeated)
	})
}

// Two clients that undo each other's writes never end; one that goes through many states does.
func TestNoRest(t *testing.T) {
	site := Name{sites, "shop", "a"}
	run := func(writes int, pause time.Duration, state func(i int) string) *script {
		s := newScript()
		for i := range writes {
			s.write([]Client{operator, somebody}[i%2], "update", site, "site", object(map[string]any{}, "spec", state(i), "at", s.now.UTC().Format(time.RFC3339)))
			s.now = s.now.Add(pause)
		}
		return s
	}
	turns := func(i int) string { return fmt.Sprint(i % 2) }
	run(2+mostReturns, time.Second/2, turns).finds(t, "10 times in 10s, against the writes of operator", NoRest)
	run(100, 2*time.Second, turns).finds(t, "")
	run(100, time.Second/2, func(i int) string { return fmt.Sprint(i) }).finds(t, "")
}

// Writes that are refused come with pauses.
func TestStorm(t *testing.T) {
	site := Name{sites, "shop", "a"}
	run := func(pause time.Duration) *script {
		s := newScript()
		for range 2 * mostRefusals {
			s.Refused(Refusal{Time: s.now, Client: operator, Verb: "patch", Object: site, Code: 422})
			s.now = s.now.Add(pause)
		}
		return s
	}
	run(period/mostRefusals).finds(t, "patch sites.example.com shop/a: refused 50 times in 10s, the last time with 422", Storm)
	run(period/mostRefusals*2).finds(t, "")
	s := newScript()
	for range 2 * mostRefusals {
		s.Refused(Refusal{Time: s.now, Client: operator, Verb: "create", Object: Name{sites, "shop", ""}, Code: 409})
	}
	s.finds(t, "") // they exist already
}

// A detector forgets what it must not accuse anybody of without knowing, and keeps what it has found.
func TestBounds(t *testing.T) {
	s := newScript()
	for i := range 3 * mostFound {
		name := Name{sites, "shop", fmt.Sprint(i)}
		for range mostRefusals {
			s.refused("create", name)
		}
	}
	found, dropped := s.Found()
	if len(found) != mostFound || dropped != 2*mostFound {
		t.Errorf("%d found, %d dropped", len(found), dropped)
	}
	for i := range 3 * mostLives {
		s.write(operator, "create", Name{children, "shop", fmt.Sprint(i)}, fmt.Sprint("uid-", i), object(map[string]any{}))
		if len(s.lives) > mostLives || s.knowledge.size() > mostSeen {
			t.Fatalf("%d objects, %d sights are kept", len(s.lives), s.knowledge.size())
		}
	}
	if found, _ = s.Found(); len(found) != mostFound {
		t.Errorf("%d found after that", len(found))
	}
	s.watches()
	for i := range 2 * mostSeen {
		s.Listed(Client{"system:admin", fmt.Sprint("program-", i)}, Scope{children, ""}, s.version)
		if s.knowledge.size() > mostSeen {
			t.Fatalf("%d scopes are kept", s.knowledge.size())
		}
	}
	if open, _ := s.knowledge.openWatches(operator, Name{children, "shop", "a"}); open != 1 {
		t.Errorf("%d open watches are known after that", open)
	}
	if _, covered := s.knowledge.watched(operator, Name{children, "shop", "a"}); !covered {
		t.Error("the scopes of the open watches are not known after that")
	}
}
