package insight_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
)

// chain has objects that each own the next; owners returns further owners of an object.
func chain(n int, owners func(n int) []int) *ownership.Graph {
	g := newGraph()
	named := func(n int) ownership.Reference {
		return ownership.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint("c", n), UID: ownership.UID(fmt.Sprint("c", n))}
	}
	for i := range n {
		o := ownership.Object{UID: ownership.UID(fmt.Sprint("c", i)), Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: fmt.Sprint("c", i)}
		if i > 0 {
			o.Owners = append(o.Owners, named(i-1))
		}
		for _, other := range owners(i) {
			o.Owners = append(o.Owners, named(other))
		}
		g.Observe(o)
	}
	return g
}

// For any graph, a drawing has a bounded number of bytes for each object and each reference, and a tree has a line for
// each.
func TestDrawingsAreLinear(t *testing.T) {
	const objects, mostBytes = 4000, 400
	for name, owners := range map[string]func(n int) []int{
		"a chain":                         func(int) []int { return nil },
		"a chain with a common owner":     func(n int) []int { return []int{0} },
		"a chain that forks":              func(n int) []int { return []int{n / 2} },
		"a chain in a circle":             func(n int) []int { return []int{objects - 1 - n} },
		"a chain where each owns forward": func(n int) []int { return []int{min(n+1, objects-1), min(n+7, objects-1)} },
	} {
		picture := insight.Whole(viewOf(chain(objects, owners)))
		most := mostBytes * (len(picture.Objects) + len(picture.References))
		for _, format := range []insight.Format{insight.Tree, insight.DOT, insight.Mermaid, insight.SVG, insight.JSON} {
			text, err := picture.Encode(format)
			if format == insight.SVG && (errors.Is(err, insight.ErrTooLarge) || len(text) <= 10*most) {
				continue
			}
			if err != nil || len(text) > most {
				t.Errorf("%s as %s: %d bytes for %d objects and %d references (%v)", name, format, len(text), len(picture.Objects), len(picture.References), err)
			}
			if lines := strings.Count(string(text), "\n"); format == insight.Tree && lines > len(picture.Objects)+len(picture.References) {
				t.Errorf("%s: %d lines for %d objects", name, lines, len(picture.Objects))
			}
		}
	}
}

// A tree shows each object once, and refers to it elsewhere; it also has the objects below a deep one.
func TestTreeHasEachObjectOnce(t *testing.T) {
	const objects = 100
	picture := insight.Whole(viewOf(chain(objects, func(n int) []int { return []int{n / 3} })))
	text, err := picture.Encode(insight.Tree)
	if err != nil {
		t.Fatal(err)
	}
	for n := range objects {
		drawn := 0
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(strings.TrimSpace(line), fmt.Sprintf("shop/c%d", n)) {
				drawn++
			}
		}
		if drawn != 1 {
			t.Errorf("c%d is drawn %d times", n, drawn)
		}
	}
	if !strings.Contains(string(text), "(see below)") || !strings.Contains(string(text), "(see above)") {
		t.Errorf("nothing refers to another line:\n%s", text)
	}
}

// A Looker reads only objects that it sees, and does not follow others.
func TestLookerReadsWhatItSees(t *testing.T) {
	const tail = 1000
	g := chain(tail, func(int) []int { return nil })
	g.Observe(ownership.Object{
		UID: "hidden", Kind: ownership.Kind{Kind: "Volume"}, Name: "hidden",
		Owners: []ownership.Reference{{APIVersion: "v1", Kind: "Node", Name: "top", UID: "top"}},
	})
	g.Observe(ownership.Object{UID: "top", Kind: ownership.Kind{Kind: "Node"}, Name: "top"})
	for n := range tail {
		g.Observe(ownership.Object{
			UID: ownership.UID(fmt.Sprint("below", n)), Kind: ownership.Kind{Kind: "Node"}, Name: fmt.Sprint("below", n),
			Owners: []ownership.Reference{{APIVersion: "v1", Kind: "Volume", Name: "hidden", UID: "hidden"}},
		})
	}
	asked := 0
	l := insight.Looker{View: viewOf(g), Sees: func(kind ownership.Kind, _ string) bool {
		asked++
		return kind.Kind == "Node"
	}}
	for name, picture := range map[string]insight.Graph{"down": l.Dependents("top"), "around": l.Component("top")} {
		if len(picture.Objects) != 1 || len(picture.References) != 0 {
			t.Errorf("%s: %d objects and %d references, want top alone", name, len(picture.Objects), len(picture.References))
		}
	}
	if asked > 10 {
		t.Errorf("asked about %d objects, most of them behind a hidden one", asked)
	}
	if hidden := l.Component("hidden"); len(hidden.Objects) != 0 {
		t.Errorf("around a hidden object: %d objects", len(hidden.Objects))
	}
	if up := l.Owners("below1"); len(up.Objects) != 1 || len(up.References) != 0 {
		t.Errorf("up: %+v", up)
	}
	if whole := l.Whole(); len(whole.Objects) != tail || len(whole.References) != 0 {
		t.Errorf("whole: %d objects and %d references, want %d and none", len(whole.Objects), len(whole.References), tail) // top owns nothing that is seen
	}
}

func TestTextsOfObjectsAreBounded(t *testing.T) {
	long := strings.Repeat("long", 1<<16)
	var o ownership.Object
	o.UID, o.Kind, o.Namespace, o.Name, o.Phase = "held", ownership.Kind{Kind: "ConfigMap"}, "shop", "held", ownership.Terminating
	for n := range 2000 {
		o.Finalizers = append(o.Finalizers, fmt.Sprintf("example.com/hold-%d", n))
	}
	for n := range 20 {
		o.Owners = append(o.Owners, ownership.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprint(n) + long, UID: ownership.UID(fmt.Sprint(n) + long)})
	}
	g := newGraph()
	g.Observe(o)
	picture := insight.Whole(viewOf(g))
	if len(picture.Objects) != 21 || len(picture.References) != 20 {
		t.Fatalf("%d objects and %d references", len(picture.Objects), len(picture.References))
	}
	for _, format := range []insight.Format{insight.Tree, insight.DOT, insight.Mermaid, insight.SVG, insight.JSON} {
		text, err := picture.Encode(format)
		if err != nil || len(text) > 128<<10 {
			t.Errorf("%s has %d bytes (%v)", format, len(text), err)
		}
		if finalizers := format == insight.Tree || format == insight.JSON || format == insight.SVG; finalizers && !strings.Contains(string(text), "more") {
			t.Errorf("%s does not count finalizers", format)
		}
	}
}
