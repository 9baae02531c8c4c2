package cli

import (
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// The kinds whose deletion also deletes their contents.
const (
	namespaceKind  = "Namespace"
	definitionKind = "CustomResourceDefinition.apiextensions.k8s.io"
)

// container names a Namespace or a CustomResourceDefinition.
type container struct{ kind, name string }

// pictureOf returns the graph of the objects that a deletion affects, with the fate of each. The requested objects
// come first. The contents of a Namespace or a CustomResourceDefinition are its children in the graph, unless they
// have an owner there.
func pictureOf(r preview.Report) insight.Graph {
	var picture insight.Graph
	inPicture := make(map[string]bool, len(r.Objects))
	containers := make(map[container]ownership.UID)
	for n := range r.Objects {
		o := &r.Objects[n]
		inPicture[o.UID] = true
		if o.Kind == namespaceKind || o.Kind == definitionKind {
			containers[container{o.Kind, o.Name}] = ownership.UID(o.UID)
		}
	}
	for _, o := range requestedFirst(r.Objects) {
		uid := ownership.UID(o.UID)
		picture.Objects = append(picture.Objects, drawn(o))
		isOwned := false
		for _, owner := range o.Owners {
			if inPicture[owner.UID] {
				isOwned = true
				picture.References = append(picture.References, insight.Reference{
					Dependent: uid, Owner: ownership.UID(owner.UID), Standing: "solid", Blocking: owner.Blocking, Controller: owner.Controller,
				})
			}
		}
		if in := containerOf(o, containers); !isOwned && in != "" {
			picture.References = append(picture.References, insight.Reference{Dependent: uid, Owner: in, Standing: insight.Content})
		}
	}
	return picture
}

// drawn returns an object of the graph, with its fate as a note.
func drawn(o *preview.ObjectReport) insight.Object {
	kind, group, _ := strings.Cut(o.Kind, ".")
	phase := o.Phase
	if phase == "" {
		phase = ownership.Active.String()
	}
	return insight.Object{
		UID: ownership.UID(o.UID), Group: group, Kind: kind, Namespace: o.Namespace, Name: o.Name,
		Phase: phase, Finalizers: o.Finalizers, Note: o.Says(),
	}
}

// requestedFirst returns the objects with the requested ones in front, otherwise in their order.
func requestedFirst(objects []preview.ObjectReport) []*preview.ObjectReport {
	sorted := make([]*preview.ObjectReport, len(objects))
	for n := range objects {
		sorted[n] = &objects[n]
	}
	slices.SortStableFunc(sorted, func(a, b *preview.ObjectReport) int {
		switch {
		case a.Requested == b.Requested:
			return 0
		case a.Requested:
			return -1
		}
		return 1
	})
	return sorted
}

// containerOf returns the definition of an object's kind, or else its namespace, if containers has it.
func containerOf(o *preview.ObjectReport, containers map[container]ownership.UID) ownership.UID {
	if uid := containers[container{definitionKind, o.Resource}]; uid != "" {
		return uid
	}
	return containers[container{namespaceKind, o.Namespace}]
}
