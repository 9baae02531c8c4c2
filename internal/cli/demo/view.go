package demo

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// View holds the existing and the deleted objects, according to watch events. It is not safe
// for concurrent use.
type View struct {
	objects map[types.UID]Object
	marked  []Object // their states in the first event in which they were being deleted
	removed []Object
}

// NewView returns an empty view.
func NewView() *View { return &View{objects: map[types.UID]Object{}} }

// Put adds or replaces an object. It returns a line that describes the change, or "" if the
// change does not affect the tree.
func (v *View) Put(o Object) string {
	old, known := v.objects[o.UID]
	v.objects[o.UID] = o
	if o.Deleting && !old.Deleting {
		v.marked = append(v.marked, o)
	}
	switch now := v.told(o); {
	case !known:
		return "+ " + now
	case now != v.told(old):
		return "~ " + now
	}
	return ""
}

// Remove removes an object. o is its last state, with the version of its deletion.
func (v *View) Remove(o Object) string {
	delete(v.objects, o.UID)
	v.removed = append(v.removed, o)
	return "- " + o.String()
}

// told describes an object in one line. The line names its owners, as it has no tree around it.
func (v *View) told(o Object) string {
	var notes []string
	for _, owner := range o.Owners {
		notes = append(notes, "owned by "+owner.Kind+"/"+owner.Name)
	}
	notes = append(append(notes, o.notes()...), o.Problems...)
	if len(notes) == 0 {
		return o.String()
	}
	return o.String() + "  " + strings.Join(notes, separator)
}

// Listed returns a view of the objects in a list, with the history of v.
func (v *View) Listed(objects []Object) *View {
	listed := &View{objects: map[types.UID]Object{}, marked: v.marked, removed: v.removed}
	for _, o := range objects {
		listed.objects[o.UID] = o
	}
	return listed
}

// All returns the existing objects of a kind, sorted by name.
func (v *View) All(kind string) []Object {
	of := slices.DeleteFunc(slices.Collect(maps.Values(v.objects)), func(o Object) bool { return o.Kind != kind })
	slices.SortFunc(of, inOrder)
	return of
}

// Find returns the object of this kind and name, if it exists.
func (v *View) Find(kind, name string) (Object, bool) {
	for _, o := range v.objects {
		if o.Kind == kind && o.Name == name {
			return o, true
		}
	}
	return Object{}, false
}

// Gone returns the objects of a kind that are gone, in the order of their watch events.
func (v *View) Gone(kind string) []Object { return ofKind(v.removed, kind) }

// Marked returns the objects of a kind that are or were terminating, in the order of their first
// watch event with a deletionTimestamp, in the state of that event.
func (v *View) Marked(kind string) []Object { return ofKind(v.marked, kind) }

func ofKind(objects []Object, kind string) []Object {
	return slices.DeleteFunc(slices.Clone(objects), func(o Object) bool { return o.Kind != kind })
}

// WentInOrder reports whether the objects of all the kinds are gone, all of one kind before the
// first of the next.
func (v *View) WentInOrder(kinds ...string) bool {
	var last []Object
	for _, kind := range kinds {
		removed := v.Gone(kind)
		if len(removed) == 0 || len(v.All(kind)) > 0 {
			return false
		}
		for _, earlier := range last {
			if slices.ContainsFunc(removed, func(o Object) bool { return !before(earlier.Version, o.Version) }) {
				return false
			}
		}
		last = removed
	}
	return true
}
