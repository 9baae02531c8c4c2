// Package insight shows the ownership graph to people: which object owns which, the standing of
// each owner reference, and the decision about each object.
//
// The main flow:
//
//  1. Whole, Component, Owners or Dependents reads the ownership graph into a Graph, which is a
//     copy for display: all objects with owners or dependents, or the connected components of
//     some objects, or their owners or dependents. The graph is read in batches, so that the
//     collector does not wait for long; the copy may have only a part of a concurrent change.
//  2. The copy is encoded as DOT, JSON, SVG, Mermaid or a tree in text (dot.go, svg.go, mermaid.go,
//     tree.go), ordered by kind, namespace and name: the same graph gives the same bytes.
//  3. For SVG the objects are laid out in columns, owners left of their dependents
//     (layout.go, layout_place.go).
//
// Standings and decisions come from package verdict; this package has no rules, and never
// changes the graph.
//
// The layout is our own, 480 lines, so that a browser or kubectl get --raw shows a graph where
// no Graphviz is installed. Alternatives:
// github.com/goccy/go-graphviz is Graphviz compiled to WebAssembly, with a runtime for that,
// and adds several megabytes to a binary that needs it for one format.
// github.com/nulab/autog is pure Go, but version 0 by a single author. According to its README,
// it does not route edges of a vertex to itself, which an object that owns itself has, and its
// layering is quadratic, while we draw up to 5000 objects.
package insight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Format is an encoding of a Graph.
type Format string

// The formats.
const (
	DOT     Format = "dot"
	JSON    Format = "json"
	SVG     Format = "svg"
	Tree    Format = "tree"
	Mermaid Format = "mermaid"
)

// Formats returns the names of all formats.
func Formats() []string {
	return []string{string(DOT), string(JSON), string(Mermaid), string(SVG), string(Tree)}
}

// ParseFormat returns the format of a name; the empty name is DOT.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case "":
		return DOT, nil
	case DOT, JSON, SVG, Tree, Mermaid:
		return f, nil
	}
	return "", fmt.Errorf("format %q: choose one of %s", name, strings.Join(Formats(), ", "))
}

// ContentType returns the media type of a format.
func (f Format) ContentType() string {
	switch f {
	case JSON:
		return "application/json"
	case SVG:
		return "image/svg+xml"
	case Tree, Mermaid:
		return "text/plain; charset=utf-8"
	case DOT:
	}
	return "text/vnd.graphviz"
}

// Graph is an immutable copy of the ownership graph, or of a part of it.
type Graph struct {
	// Objects are sorted by kind, namespace, name and UID.
	Objects []Object `json:"objects"`
	// References are sorted by dependent, in the order of Objects; the references of
	// one dependent are in the stored order.
	References []Reference `json:"references"`
}

// Object is one object, or an owner that is missing.
type Object struct {
	UID       ownership.UID `json:"uid"`
	Group     string        `json:"group,omitempty"`
	Kind      string        `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	// Missing marks an owner that is not observed; its coordinates come from the reference of a
	// dependent.
	Missing bool `json:"missing,omitempty"`
	// Phase is active, orphaning, foreground or terminating; empty when missing.
	Phase      string   `json:"phase,omitempty"`
	Finalizers []string `json:"finalizers,omitempty"`
	// Decision is the collector's current decision about the object; empty when missing.
	Decision string `json:"decision,omitempty"`
	// Note is further information about the object, in words.
	Note string `json:"note,omitempty"`
}

// kind returns the kind and group: ReplicaSet.apps.
func (o *Object) kind() string {
	return escape.Line(ownership.Kind{Group: o.Group, Kind: o.Kind}.String())
}

func (o *Object) location() ownership.Location {
	return ownership.Location{Kind: ownership.Kind{Group: o.Group, Kind: o.Kind}, Namespace: o.Namespace}
}

// path returns the namespace and name for people, on one line.
func (o *Object) path() string {
	if o.Namespace == "" {
		return escape.Line(o.Name)
	}
	return escape.Line(o.Namespace + "/" + o.Name)
}

// Content is the standing of a Reference that is not an owner reference: the object is in a namespace, or is
// an instance of a CustomResourceDefinition, and is deleted with it.
const Content = "content"

// Reference is one owner reference.
type Reference struct {
	Dependent ownership.UID `json:"dependent"`
	Owner     ownership.UID `json:"owner"`
	// Standing is solid, waiting, dangling, unverified, unmapped or misplaced (R5, R7).
	Standing string `json:"standing"`
	// Evidence is the evidence for the standing: observation, deleted event, live read or none
	// (R3).
	Evidence   string `json:"evidence"`
	Blocking   bool   `json:"blocking,omitempty"`
	Controller bool   `json:"controller,omitempty"`

	claim ownership.Location // of the owner, as the dependent states it
}

// Encode returns the graph in a format.
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
	case Tree:
		g.writeTree(&out)
	case Mermaid:
		g.writeMermaid(&out)
	default:
		err = fmt.Errorf("format %q is not known", f)
	}
	return out.Bytes(), err
}

// In returns the part of the graph about a namespace: the namespace and its objects, and their owners and dependents
// elsewhere.
func (g Graph) In(namespace string) Graph {
	inside := make(map[ownership.UID]bool, len(g.Objects))
	for i := range g.Objects {
		o := &g.Objects[i]
		inside[o.UID] = o.Namespace == namespace || o.Group == "" && o.Kind == "Namespace" && o.Name == namespace
	}
	part, kept := Graph{Objects: []Object{}, References: []Reference{}}, maps.Clone(inside)
	for _, r := range g.References {
		if inside[r.Dependent] || inside[r.Owner] {
			part.References = append(part.References, r)
			kept[r.Dependent], kept[r.Owner] = true, true
		}
	}
	for _, o := range g.Objects {
		if kept[o.UID] {
			part.Objects = append(part.Objects, o)
		}
	}
	return part
}

// sort sorts objects and references.
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

// places returns the indexes of the objects by UID.
func (g *Graph) places() map[ownership.UID]int {
	place := make(map[ownership.UID]int, len(g.Objects))
	for i := range g.Objects {
		place[g.Objects[i].UID] = i
	}
	return place
}
