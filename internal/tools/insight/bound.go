package insight

import "github.com/coppice-dev/coppice/internal/rules/ownership"

const (
	// mostText is the longest text of an object, in bytes.
	mostText = 1024
	// mostIndented is the deepest indentation of a tree. Deeper objects begin again at the left, so that a tree
	// has a bounded number of bytes for each object.
	mostIndented = 24
)

// bound bounds the texts of all objects. Users choose the length of names, UIDs and finalizers, and decisions name
// them.
func (g *Graph) bound() {
	for n := range g.References {
		r := &g.References[n]
		r.Owner, r.Dependent = boundedUID(r.Owner), boundedUID(r.Dependent)
	}
	for n := range g.Objects {
		o := &g.Objects[n]
		o.UID = boundedUID(o.UID)
		o.Group, o.Kind, o.Namespace = ownership.Excerpt(o.Group, mostText), ownership.Excerpt(o.Kind, mostText), ownership.Excerpt(o.Namespace, mostText)
		o.Name, o.Decision = ownership.Excerpt(o.Name, mostText), ownership.Excerpt(o.Decision, mostText)
		o.Finalizers = ownership.BoundedFinalizers(o.Finalizers)
	}
}

// boundedUID returns the UID, or a digest of a long one.
func boundedUID(uid ownership.UID) ownership.UID {
	return ownership.Bounded(ownership.Object{UID: uid}).UID
}

// Bytes returns the length of all texts of a graph. No format is shorter.
func (g *Graph) Bytes() int {
	sum := 0
	for n := range g.Objects {
		o := &g.Objects[n]
		sum += len(o.UID) + len(o.Kind) + len(o.Namespace) + len(o.Name)
	}
	for n := range g.References {
		sum += len(g.References[n].Standing)
	}
	return sum
}
