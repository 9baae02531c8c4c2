package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// name is the name of an object in a request.
type name struct {
	resource        *inventory.Resource
	namespace, name string
}

// parse parses RESOURCE.GROUP/NAMESPACE/NAME, or RESOURCE.GROUP/NAME for an object without a namespace, or in
// the given namespace.
func parse(served *inventory.Inventory, text, namespace string) (name, error) {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || slices.Contains(parts, "") {
		return name{}, &refusal{http.StatusBadRequest, fmt.Sprintf("object %q is not RESOURCE.GROUP/NAMESPACE/NAME", text)}
	}
	r, err := served.Find(parts[0])
	if err != nil {
		return name{}, &refusal{http.StatusBadRequest, err.Error()}
	}
	switch {
	case r.Namespaced && len(parts) == 3:
		return name{r, parts[1], parts[2]}, nil
	case r.Namespaced && len(parts) == 2 && namespace != "":
		return name{r, namespace, parts[1]}, nil
	case !r.Namespaced && len(parts) == 2:
		return name{resource: r, name: parts[1]}, nil
	case r.Namespaced:
		return name{}, &refusal{http.StatusBadRequest, fmt.Sprintf("object %q: %s are in namespaces: %s/NAMESPACE/NAME", text, r.GroupResource(), parts[0])}
	default:
		return name{}, &refusal{http.StatusBadRequest, fmt.Sprintf("object %q: %s are in no namespace: %s/NAME", text, r.GroupResource(), parts[0])}
	}
}

// names parses the names in a request. It refuses a name that the caller may not list, whether or not the object
// exists.
func (h *handler) names(r *http.Request, s *Sight) ([]name, error) {
	served := &inventory.Inventory{Resources: h.source.Resources()}
	var all []name
	for _, text := range r.URL.Query()["object"] {
		n, err := parse(served, text, r.URL.Query().Get("namespace"))
		if err != nil {
			return nil, err
		}
		seen, err := s.Sees(r.Context(), n.resource.OwnerKind(), n.namespace)
		if err != nil {
			return nil, err
		}
		if !seen {
			return nil, &refusal{http.StatusForbidden, fmt.Sprintf("you may not list %s there", n.resource.GroupResource())}
		}
		all = append(all, n)
	}
	return all, nil
}

// named returns the UIDs of the objects in a request.
func (h *handler) named(r *http.Request, s *Sight) ([]ownership.UID, error) {
	if n := len(r.URL.Query()["object"]) + len(r.URL.Query()["uid"]); n > mostNamed {
		return nil, &refusal{http.StatusBadRequest, fmt.Sprintf("the request names %d objects: name at most %d at once", n, mostNamed)}
	}
	names, err := h.names(r, s)
	if err != nil {
		return nil, err
	}
	var uids []ownership.UID
	found := h.find(names)
	for _, n := range names {
		uid, isThere := found[n.coordinates()]
		if !isThere {
			return nil, &refusal{http.StatusNotFound, fmt.Sprintf("%s %q is not there", n.resource.GroupResource(), n.name)}
		}
		uids = append(uids, uid)
	}
	for _, uid := range r.URL.Query()["uid"] {
		uids = append(uids, ownership.UID(uid))
	}
	return uids, nil
}

// coordinates returns the name as the ownership graph has it.
func (n *name) coordinates() ownership.Name {
	return ownership.Name{Location: ownership.Location{Kind: n.resource.OwnerKind(), Namespace: n.namespace}, Name: n.name}
}

// find returns the UIDs of the objects with some names.
func (h *handler) find(names []name) map[ownership.Name]ownership.UID {
	found := make(map[ownership.Name]ownership.UID, len(names))
	if len(names) == 0 {
		return found
	}
	wanted := ownership.Selector{Names: make(map[ownership.Name]bool, len(names))}
	for i := range names {
		wanted.Names[names[i].coordinates()] = true
	}
	ownership.Survey(h.source.View, func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor {
		uids, next := g.Selected(from, &wanted)
		for _, uid := range uids {
			o, _ := g.Object(uid)
			found[ownership.Name{Location: ownership.Location{Kind: o.Kind, Namespace: o.Namespace}, Name: o.Name}] = uid
		}
		return next
	})
	return found
}

const (
	// mostNamed bounds the number of objects that a request names.
	mostNamed = 1000
	// mostProbed bounds the number of objects naming a missing owner that are searched for one that the caller may list.
	// It bounds the work for an owner that the caller may know nothing about.
	mostProbed = 100
)

// place is the kind and namespace of an object.
type place struct{ kind, namespace string }

// shown returns the given objects that the caller may list, and the given missing owners that such objects name. For
// any other object, neither the work nor Unread depends on whether it exists.
func (h *handler) shown(ctx context.Context, s *Sight, uids []ownership.UID) ([]ownership.UID, error) {
	places := make([][]place, len(uids))
	h.source.View(func(g *ownership.Graph) {
		for n, uid := range uids {
			places[n] = placesOf(g, uid)
		}
	})
	var shown []ownership.UID
	for n, uid := range uids {
		for _, p := range places[n] {
			seen, err := s.may(ctx, p.kind, p.namespace)
			if err != nil {
				return nil, err
			}
			if seen {
				shown = append(shown, uid)
				break
			}
		}
	}
	return shown, nil
}

// placesOf returns the place of an object if it is observed, and the places of some objects that name it as an owner
// with other coordinates.
func placesOf(g *ownership.Graph, uid ownership.UID) []place {
	var all []place
	if kind, namespace, observed := g.Place(uid); observed {
		all = append(all, place{kind.String(), namespace})
	}
	probed := 0
	for claimant := range g.ClaimingElsewhere(uid) {
		if kind, namespace, observed := g.Place(claimant); observed && !slices.Contains(all, place{kind.String(), namespace}) {
			all = append(all, place{kind.String(), namespace})
		}
		if probed++; probed == mostProbed {
			break
		}
	}
	return all
}

// recordsWanted returns a filter for the records about the objects of a request, or for all records if it names
// none. The objects need not exist any longer.
func (h *handler) recordsWanted(r *http.Request, s *Sight) (func(*report.Record) bool, error) {
	names, err := h.names(r, s)
	if err != nil {
		return nil, err
	}
	uids := r.URL.Query()["uid"]
	return func(record *report.Record) bool {
		o := &record.Object
		isNamed := slices.ContainsFunc(names, func(n name) bool {
			return n.name == o.Name && n.namespace == o.Namespace && n.resource.OwnerKind().String() == o.Kind
		})
		return len(names)+len(uids) == 0 || isNamed || slices.Contains(uids, string(o.UID))
	}, nil
}
