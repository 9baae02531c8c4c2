package demo

import (
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// separator separates the notes of an object.
const separator = " · "

// Emphasis is the emphasis of a line of the tree.
type Emphasis int

// The emphases.
const (
	Normal   Emphasis = iota // the object is not being deleted
	Deleting                 // the object is being deleted
	Problem                  // the line is the reason why a namespace still exists
)

// Line is one line of the tree.
type Line struct {
	Left     string // branches and name
	Right    string // the notes
	Emphasis Emphasis
}

// Tree returns the tree of owners and dependents: every object below its owner, and objects
// without an owner below the namespace. An object with several owners is below its
// controller, or else below the first one that exists.
func (v *View) Tree() []Line {
	t := drawing{view: v, below: map[types.UID][]Object{}, drawn: map[types.UID]bool{}}
	var roots []Object
	namespace := types.UID("")
	if all := v.All("Namespace"); len(all) > 0 {
		namespace = all[0].UID
	}
	for _, o := range v.objects {
		switch owner, owned := v.ownerOf(o); {
		case owned:
			t.below[owner.UID] = append(t.below[owner.UID], o)
		case o.UID == namespace || namespace == "":
			roots = append(roots, o)
		default:
			t.below[namespace] = append(t.below[namespace], o)
		}
	}
	slices.SortFunc(roots, inOrder)
	for _, o := range roots {
		t.draw(o, "", "", "")
	}
	// Objects in a cycle of owners are below no root.
	rest := make([]Object, 0, len(v.objects))
	for _, o := range v.objects {
		rest = append(rest, o)
	}
	slices.SortFunc(rest, inOrder)
	for _, o := range rest {
		if !t.drawn[o.UID] {
			t.draw(o, "", "", "")
		}
	}
	return t.lines
}

// ownerOf returns the reference to the parent of an object in the tree.
func (v *View) ownerOf(o Object) (metav1.OwnerReference, bool) {
	there := slices.DeleteFunc(slices.Clone(o.Owners), func(r metav1.OwnerReference) bool {
		_, ok := v.objects[r.UID]
		return !ok
	})
	for _, r := range there {
		if r.Controller != nil && *r.Controller {
			return r, true
		}
	}
	if len(there) > 0 {
		return there[0], true
	}
	return metav1.OwnerReference{}, false
}

type drawing struct {
	view  *View
	below map[types.UID][]Object
	drawn map[types.UID]bool
	lines []Line
}

// draw draws an object and its subtree. indent precedes all lines, branch the object's own line,
// and stem the lines below.
func (t *drawing) draw(o Object, indent, branch, stem string) {
	if t.drawn[o.UID] {
		return
	}
	t.drawn[o.UID] = true
	line := Line{Left: indent + branch + o.String(), Right: strings.Join(t.notes(o), separator)}
	if o.Deleting {
		line.Emphasis = Deleting
	}
	t.lines = append(t.lines, line)
	below := t.below[o.UID]
	slices.SortFunc(below, inOrder)
	for _, problem := range o.Problems {
		bar := "   "
		if len(below) > 0 {
			bar = "│  "
		}
		t.lines = append(t.lines, Line{Left: indent + stem + bar + problem, Emphasis: Problem})
	}
	for i, dependent := range below {
		if i == len(below)-1 {
			t.draw(dependent, indent+stem, "└─ ", "   ")
		} else {
			t.draw(dependent, indent+stem, "├─ ", "│  ")
		}
	}
}

// notes returns the notes of an object, with notes about owners that wait for it or are gone.
func (t *drawing) notes(o Object) []string {
	notes := o.notes()
	for _, r := range o.Owners {
		owner, there := t.view.objects[r.UID]
		switch {
		case !there:
			notes = append(notes, "owner "+r.Kind+"/"+r.Name+" is gone")
		case owner.Has(metav1.FinalizerDeleteDependents) && r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion:
			notes = append(notes, "holds its owner")
		}
	}
	return notes
}

// widestName limits the column in which notes begin.
const widestName = 50

// Text returns the tree as lines of text, with the notes in a column.
func Text(lines []Line) []string {
	column := 0
	for _, l := range lines {
		if l.Right != "" {
			column = max(column, min(utf8.RuneCountInString(l.Left), widestName))
		}
	}
	text := make([]string, 0, len(lines))
	for _, l := range lines {
		if l.Right == "" {
			text = append(text, l.Left)
			continue
		}
		pad := max(0, column-utf8.RuneCountInString(l.Left))
		text = append(text, l.Left+strings.Repeat(" ", pad+2)+l.Right)
	}
	return text
}
