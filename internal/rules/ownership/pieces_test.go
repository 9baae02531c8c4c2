package ownership_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// question is a question about all objects, which has the same answer whatever the pieces.
type question struct {
	name string
	ask  func(view func(func(g *ownership.Graph)))
}

func questions() []question {
	uids := func(name string, piece func(*ownership.Graph, ownership.Cursor) ([]ownership.UID, ownership.Cursor)) question {
		return question{name, func(view func(func(g *ownership.Graph))) { ownership.All(view, piece) }}
	}
	survey := func(name string, piece func(*ownership.Graph, ownership.Cursor) ownership.Cursor) question {
		return question{name, func(view func(func(g *ownership.Graph))) { ownership.Survey(view, piece) }}
	}
	shop := ownership.Location{Kind: configMap, Namespace: "default"}
	var deletions ownership.Deletions
	return []question{
		uids("unsettled", (*ownership.Graph).Unsettled), uids("protected", (*ownership.Graph).Protected),
		uids("deleting", (*ownership.Graph).Deleting), uids("observed", (*ownership.Graph).Observed), uids("related", (*ownership.Graph).Related),
		uids("related in", func(g *ownership.Graph, from ownership.Cursor) ([]ownership.UID, ownership.Cursor) {
			return g.RelatedIn(from, []ownership.Location{shop})
		}),
		uids("selected", func(g *ownership.Graph, from ownership.Cursor) ([]ownership.UID, ownership.Cursor) {
			return g.Selected(from, &ownership.Selector{Places: map[ownership.Location]bool{shop: true}})
		}),
		uids("claimants", func(g *ownership.Graph, from ownership.Cursor) ([]ownership.UID, ownership.Cursor) {
			return g.ClaimantsOf(from, []ownership.UID{"root"})
		}),
		survey("related at", func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor {
			return g.RelatedAt(from, map[ownership.Location]bool{})
		}),
		survey("parked", func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor {
			return g.Parked(from, map[ownership.Kind]int{})
		}),
		survey("deletions", func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor { return deletions.Add(g, from) }),
	}
}

func uidOf(i int) ownership.UID {
	return ownership.UID(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i))
}

// large returns a graph of so many objects, each of which is being deleted, is owned by the root, and waits for a kind.
func large(objects int) *ownership.Graph {
	g := ownership.New()
	g.SetScope(configMap, ownership.Namespaced)
	g.Observe(object("root", 1))
	for i := range objects {
		o := foreground(uidOf(i), 1, "root")
		o.Owners = append(o.Owners, ownership.Reference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "w"})
		o.Protected = true
		g.Observe(o)
	}
	return g
}

// No question looks at more than Piece entries, or references, while the graph is locked once: each takes at least one
// hold for each piece.
func TestQuestionsAboutAllObjectsReleaseTheLock(t *testing.T) {
	const objects = 3 * ownership.Piece
	g := large(objects)
	for _, q := range questions() {
		holds := 0
		q.ask(func(read func(g *ownership.Graph)) {
			holds++
			read(g)
		})
		if holds < objects/ownership.Piece {
			t.Errorf("%s: %d holds of the lock for %d objects", q.name, holds, objects)
		}
	}
	if uids, all := g.ClaimantsUpTo("root", 10); len(uids) != 10 || all {
		t.Errorf("%d claimants, all: %t; want 10 of many", len(uids), all)
	}
}

// A survey has each object once that is there all the time, while others come and go between the pieces.
func TestSurveyHasWhatStays(t *testing.T) {
	const objects = 3 * ownership.Piece
	g := large(objects)
	pieces := 0
	found := ownership.All(func(read func(g *ownership.Graph)) {
		pieces++
		for i := range objects / 10 {
			g.Forget(uidOf(10*i+pieces%3), "9")
			g.Observe(foreground(ownership.UID(fmt.Sprint("new", pieces, "-", i)), 1))
		}
		read(g)
	}, (*ownership.Graph).Observed)
	if !slices.IsSorted(found) || len(slices.Compact(slices.Clone(found))) != len(found) {
		t.Error("an object is found twice")
	}
	for i := range objects {
		if uid := uidOf(i); i%10 > 2 {
			if _, isFound := slices.BinarySearch(found, uid); !isFound {
				t.Fatalf("%s is not found, and was there all the time", uid)
			}
		}
	}
}
