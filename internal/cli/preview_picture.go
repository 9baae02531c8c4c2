package cli

import (
	"cmp"
	"slices"

	"github.com/coppice-dev/coppice/internal/insight"
	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/preview"
)

// pictureOf returns what a deletion concerns as a graph, with what becomes of each object. The objects
// that are asked for come first. What a namespace or a CustomResourceDefinition takes along is below
// it, unless it has an owner in the picture.
func pictureOf(p preview.Prediction, r preview.Report) insight.Graph {
	var picture insight.Graph
	inPicture := make(map[ownership.UID]bool, len(p.Outcomes))
	containers := make(map[string]ownership.UID)
	order := make([]int, len(p.Outcomes))
	for n := range p.Outcomes {
		order[n] = n
		o := p.Outcomes[n].Object
		inPicture[o.UID] = true
		if o.Kind.Kind == "Namespace" && o.Kind.Group == "" || o.Kind.Kind == "CustomResourceDefinition" && o.Kind.Group == "apiextensions.k8s.io" {
			containers[containerName(o.Kind, o.Name)] = o.UID
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(&p.Outcomes[a]), rank(&p.Outcomes[b])) })
	for _, n := range order {
		o := p.Outcomes[n].Object
		picture.Objects = append(picture.Objects, insight.Object{
			UID: o.UID, Group: o.Kind.Group, Kind: o.Kind.Kind, Namespace: o.Namespace, Name: o.Name,
			Phase: o.Phase.String(), Finalizers: o.Finalizers, Note: r.Objects[n].Says(),
		})
		isOwned := false
		for _, owner := range o.Owners {
			if inPicture[owner.UID] {
				isOwned = true
				picture.References = append(picture.References, insight.Reference{
					Dependent: o.UID, Owner: owner.UID, Standing: "solid",
					Blocking: owner.BlockOwnerDeletion == ownership.True, Controller: owner.Controller == ownership.True,
				})
			}
		}
		if container := containerOf(o, containers); !isOwned && container != "" {
			picture.References = append(picture.References, insight.Reference{Dependent: o.UID, Owner: container, Standing: insight.Content})
		}
	}
	return picture
}

// rank puts what is asked for first.
func rank(o *preview.Outcome) int {
	if o.Requested {
		return 0
	}
	return 1
}

func containerName(kind ownership.Kind, name string) string { return kind.Kind + " " + name }

// containerOf returns the namespace of an object or the definition of its kind, if that is one of some.
func containerOf(o *inventory.Object, containers map[string]ownership.UID) ownership.UID {
	definition := ownership.Kind{Kind: "CustomResourceDefinition"}
	if uid := containers[containerName(definition, o.Resource.Resource+"."+o.Resource.Group)]; uid != "" {
		return uid
	}
	return containers[containerName(ownership.Kind{Kind: "Namespace"}, o.Namespace)]
}
