package insight

import (
	"bytes"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// tree writes a Graph as indented text: dependents below their owners. An object with several owners is
// written below the first; below the others, a line refers to it. An object that is too deep is written later, at the
// left. So each object and each reference is a line with a bounded indentation.
type tree struct {
	out        *bytes.Buffer
	graph      Graph
	places     map[ownership.UID]int
	dependents map[ownership.UID][]Reference
	written    map[ownership.UID]bool // or among deep
	deep       []*Object              // objects whose dependents are written later
}

func (g Graph) writeTree(w *bytes.Buffer) {
	t := tree{out: w, graph: g, places: g.places(), dependents: make(map[ownership.UID][]Reference), written: make(map[ownership.UID]bool)}
	hasOwner := make(map[ownership.UID]bool)
	named := make(map[[2]ownership.UID]bool) // pairs already added: an object may name an owner twice
	for _, r := range g.References {
		if pair := [2]ownership.UID{r.Owner, r.Dependent}; !named[pair] {
			named[pair] = true
			t.dependents[r.Owner] = append(t.dependents[r.Owner], r)
			hasOwner[r.Dependent] = hasOwner[r.Dependent] || r.Owner != r.Dependent
		}
	}
	for i := range g.Objects {
		if !hasOwner[g.Objects[i].UID] {
			t.root(&g.Objects[i])
		}
	}
	for i := range g.Objects { // the remaining objects are in cycles, or below them
		if !t.written[g.Objects[i].UID] {
			t.root(&g.Objects[i])
		}
	}
}

func (t *tree) root(o *Object) {
	t.out.WriteString(escape.Line(t.line(o, "")) + "\n")
	t.below(o, "", 0)
	for len(t.deep) > 0 {
		next := t.deep[0]
		t.deep = t.deep[1:]
		t.out.WriteString(escape.Line(t.line(next, "")) + "\n")
		t.below(next, "", 0)
	}
}

// below writes the dependents of an object at a depth.
func (t *tree) below(o *Object, indent string, depth int) {
	t.written[o.UID] = true
	references := t.dependents[o.UID]
	for n, r := range references {
		branch, further := "├── ", "│   "
		if n == len(references)-1 {
			branch, further = "└── ", "    "
		}
		dependent := &t.graph.Objects[t.places[r.Dependent]]
		if t.written[r.Dependent] {
			t.out.WriteString(indent + branch + dependent.kind() + " " + dependent.path() + " (see above)\n")
			continue
		}
		if depth+1 == mostIndented && len(t.dependents[r.Dependent]) > 0 {
			t.written[r.Dependent] = true
			t.deep = append(t.deep, dependent)
			t.out.WriteString(indent + branch + dependent.kind() + " " + dependent.path() + " (see below)\n")
			continue
		}
		t.out.WriteString(indent + branch + escape.Line(t.line(dependent, r.Standing)) + "\n")
		t.below(dependent, indent+further, depth+1)
	}
}

// line describes an object, and its reference to the owner above if that is not solid.
func (t *tree) line(o *Object, standing string) string {
	text := o.kind() + " " + o.path()
	var notes []string
	switch {
	case o.Missing:
		notes = append(notes, "missing")
	case o.Phase != ownership.Active.String():
		notes = append(notes, o.Phase)
	}
	if standing != "" && standing != "solid" && standing != Content {
		notes = append(notes, "reference "+standing)
	}
	if len(o.Finalizers) > 0 && o.Phase != ownership.Active.String() {
		notes = append(notes, "finalizers "+strings.Join(o.Finalizers, " "))
	}
	if len(notes) > 0 {
		text += " [" + strings.Join(notes, ", ") + "]"
	}
	if o.Decision != "" && !strings.HasPrefix(o.Decision, "keep") {
		text += " → " + o.Decision
	}
	if o.Note != "" {
		text += ": " + o.Note
	}
	return text
}
