// Package insight shows people what the collector knows: who owns whom, how each
// owner reference stands, and what is decided about each object.
//
// The main flow:
//
//  1. Whole or Around reads the ownership graph into a Graph, a picture of it:
//     everything that owns or is owned, or the connected components of some
//     objects. The graph is read a batch at a time, so that nobody who works with
//     it waits for a picture; what changes meanwhile may be shown half.
//  2. The picture is written as DOT, as JSON or as SVG (dot.go, svg.go). The order
//     is that of the objects' kinds, namespaces and names: the same picture gives
//     the same bytes.
//  3. For SVG the objects are laid out in columns, owners left of their
//     dependents (layout.go).
//
// What stands and what is decided is asked of package verdict; there are no rules
// here. Nothing here changes the graph.
package insight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// Format is a way to write a picture.
type Format string

// The formats.
const (
	DOT  Format = "dot"
	JSON Format = "json"
	SVG  Format = "svg"
)

// ParseFormat reads the name of a format; the empty name is DOT.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case "":
		return DOT, nil
	case DOT, JSON, SVG:
		return f, nil
	}
	return "", fmt.Errorf("format %q: choose dot, json or svg", name)
}

// ContentType is the media type of a format.
func (f Format) ContentType() string {
	switch f {
	case JSON:
		return "application/json"
	case SVG:
		return "image/svg+xml"
	case DOT:
	}
	return "text/vnd.graphviz"
}

// Graph is a picture of the ownership graph. It is a value: nobody changes it.
type Graph struct {
	// Objects are sorted by kind, namespace, name and UID.
	Objects []Object `json:"objects"`
	// References are sorted by dependent, in the order of Objects; those of one
	// dependent stand as they are stored.
	References []Reference `json:"references"`
}

// Object is one object, or an owner that is missing.
type Object struct {
	UID       ownership.UID `json:"uid"`
	Group     string        `json:"group,omitempty"`
	Kind      string        `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	// Missing owners are not observed: what is said of them is what a dependent says.
	Missing bool `json:"missing,omitempty"`
	// Phase is active, orphaning, foreground or terminating; empty when missing.
	Phase      string   `json:"phase,omitempty"`
	Finalizers []string `json:"finalizers,omitempty"`
	// Decision is what the collector decides about the object as it is now; empty when missing.
	Decision string `json:"decision,omitempty"`
}

// kind is the kind as users write it.
func (o *Object) kind() string { return ownership.Kind{Group: o.Group, Kind: o.Kind}.String() }

// path is the namespace and the name.
func (o *Object) path() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Reference is one owner reference.
type Reference struct {
	Dependent ownership.UID `json:"dependent"`
	Owner     ownership.UID `json:"owner"`
	// Standing is solid, waiting, dangling, unverified, unmapped or misplaced (R5, R7).
	Standing string `json:"standing"`
	// Evidence is what the standing rests on: observation, deleted event, live read or none (R3).
	Evidence   string `json:"evidence"`
	Blocking   bool   `json:"blocking,omitempty"`
	Controller bool   `json:"controller,omitempty"`
}

// Encode gives the picture in a format.
func (g Graph) Encode(f Format) ([]byte, error) {
	var out bytes.Buffer
	var err error
	switch f {
	case JSON:
		encoder := json.NewEncoder(&out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(g)
	case SVG:
		err = g.writeSVG(&out)
	case DOT:
		g.writeDOT(&out)
	default:
		err = fmt.Errorf("format %q is not known", f)
	}
	return out.Bytes(), err
}

// sort puts objects and references into their order.
func (g *Graph) sort() {
	slices.SortFunc(g.Objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	place := g.places()
	slices.SortStableFunc(g.References, func(a, b Reference) int {
		return cmp.Compare(place[a.Dependent], place[b.Dependent])
	})
}

// places are the positions of the objects.
func (g *Graph) places() map[ownership.UID]int {
	place := make(map[ownership.UID]int, len(g.Objects))
	for i := range g.Objects {
		place[g.Objects[i].UID] = i
	}
	return place
}
