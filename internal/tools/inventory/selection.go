package inventory

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Selection holds the objects of an ownership graph that a question about some objects concerns. Members are
// the objects that the deletion of these objects may delete, and the objects that must be gone before. Asides
// are needed to decide about members, and are not deleted. All owners of every object are included, and
// their owners, too: an owner that is missing does not exist.
type Selection struct {
	Resources       map[ownership.Kind]*Resource
	Members, Asides map[ownership.UID]ownership.Object

	view  View
	queue []ownership.UID // to become members
	// crowded are members with more claimants than mostSelected, which are still to be found.
	crowded []ownership.UID
	kinds   map[ownership.Kind]bool // all their objects become members
	defines map[ownership.Kind]bool // kinds whose CustomResourceDefinition is wanted

	// Objects to find by their coordinates.
	wanted ownership.Selector // its Names become asides, and so do Leases; all others become members
	// followers are those of the Names that become members: the Endpoints of Services.
	followers map[ownership.Name]bool
}

// View runs a function on an ownership graph, which it locks.
type View = func(read func(g *ownership.Graph))

// mostSelected bounds the objects, and the dependents of one object, that are looked at while the graph is locked once.
const mostSelected = 512

// SelectConcerned selects the objects of a graph that a question about some objects concerns. It locks the graph again
// and again, and not for long. If the graph has changed meanwhile, the selection may have objects of several moments, as
// an answer has anyway whose details are read from the server: a caller that acts on the answer asks again, and compares.
func SelectConcerned(view View, resources []*Resource, uids []ownership.UID) *Selection {
	s := &Selection{
		Resources: make(map[ownership.Kind]*Resource, len(resources)),
		Members:   make(map[ownership.UID]ownership.Object), Asides: make(map[ownership.UID]ownership.Object),
		view: view, queue: slices.Clone(uids), kinds: map[ownership.Kind]bool{}, defines: map[ownership.Kind]bool{},
		followers: map[ownership.Name]bool{},
		wanted: ownership.Selector{
			Namespaces: map[string]bool{}, Kinds: map[ownership.Kind]bool{LeaseKind(): true}, Places: map[ownership.Location]bool{}, Names: map[ownership.Name]bool{},
		},
	}
	for _, r := range resources {
		s.Resources[r.OwnerKind()] = r
	}
	s.grow()
	return s
}

// grow adds the objects that the queued objects lead to, until it finds no new one.
func (s *Selection) grow() {
	for {
		if more := len(s.queue); more > len(s.Members) { // make room for them at once
			members := make(map[ownership.UID]ownership.Object, len(s.Members)+more)
			maps.Copy(members, s.Members)
			s.Members = members
		}
		for len(s.queue) > 0 {
			s.view(s.take)
		}
		s.findClaimants()
		if len(s.queue) == 0 && !s.find() {
			return
		}
	}
}

// take makes members of some queued objects.
func (s *Selection) take(g *ownership.Graph) {
	for looked := 0; looked < mostSelected && len(s.queue) > 0; looked++ {
		uid := s.queue[len(s.queue)-1]
		s.queue = s.queue[:len(s.queue)-1]
		if _, known := s.Members[uid]; known {
			continue
		}
		if o, observed := g.Object(uid); observed {
			looked += s.add(g, o)
		}
	}
}

// add makes an object a member, and returns how many claimants it has looked at.
func (s *Selection) add(g *ownership.Graph, o ownership.Object) int {
	s.Members[o.UID] = o
	delete(s.Asides, o.UID)
	claimants, all := g.ClaimantsUpTo(o.UID, mostSelected)
	if s.queue = append(s.queue, claimants...); !all {
		s.crowded = append(s.crowded, o.UID)
	}
	s.addOwners(g, o)
	switch o.Kind {
	case ownership.Kind{Kind: "Namespace"}:
		s.wanted.Namespaces[o.Name] = true
	case definitionKind():
		if r := s.defined(o.Name); r != nil {
			s.kinds[r.OwnerKind()], s.wanted.Kinds[r.OwnerKind()] = true, true
		}
	case ownership.Kind{Kind: "Service"}: // with which its Endpoints go
		endpoints := ownership.Name{Location: ownership.Location{Kind: ownership.Kind{Kind: "Endpoints"}, Namespace: o.Namespace}, Name: o.Name}
		s.wanted.Names[endpoints], s.followers[endpoints] = true, true
	case ownership.Kind{Kind: "ServiceAccount"}: // with which the Secrets with its tokens go
		s.wanted.Places[ownership.Location{Kind: ownership.Kind{Kind: "Secret"}, Namespace: o.Namespace}] = true
	case ownership.Kind{Kind: "PersistentVolumeClaim"}:
		s.wanted.Places[ownership.Location{Kind: PodKind(), Namespace: o.Namespace}] = true // they may use it
	}
	if o.Namespace != "" {
		s.name(ownership.Kind{Kind: "Namespace"}, o.Namespace)
	}
	if r := s.Resources[o.Kind]; r != nil && !s.defines[o.Kind] {
		s.defines[o.Kind] = true
		s.name(definitionKind(), r.GroupResource().String())
	}
	return len(claimants)
}

// name has a cluster-scoped object found by its name.
func (s *Selection) name(kind ownership.Kind, name string) {
	s.wanted.Names[ownership.Name{Location: ownership.Location{Kind: kind}, Name: name}] = true
}

// addOwners adds the owners of an object.
func (s *Selection) addOwners(g *ownership.Graph, o ownership.Object) {
	for _, r := range o.Owners {
		owner, observed := g.Object(r.UID)
		switch {
		case !observed:
		case owner.Phase != ownership.Active:
			s.queue = append(s.queue, owner.UID) // it may wait for this object
		default:
			s.aside(g, owner)
		}
	}
}

func (s *Selection) aside(g *ownership.Graph, o ownership.Object) {
	_, isMember := s.Members[o.UID]
	_, isAside := s.Asides[o.UID]
	if !isMember && !isAside {
		s.Asides[o.UID] = o
		s.addOwners(g, o)
	}
}

// defined returns the resource that the CustomResourceDefinition with a name defines, or nil.
func (s *Selection) defined(name string) *Resource {
	for _, r := range s.Resources {
		if r.GroupResource().String() == name {
			return r
		}
	}
	return nil
}

// find finds objects by their coordinates, and reports whether it has queued new ones.
func (s *Selection) find() bool {
	wanted := s.wanted // asides add nothing to it
	ownership.Survey(s.view, func(g *ownership.Graph, from ownership.Cursor) ownership.Cursor {
		uids, next := g.Selected(from, &wanted)
		for _, uid := range uids {
			if _, isMember := s.Members[uid]; isMember {
				continue
			}
			kind, namespace, _ := g.Place(uid)
			switch {
			case s.isWanted(kind, namespace):
				s.queue = append(s.queue, uid)
			case kind == LeaseKind() && namespace == corev1.NamespaceNodeLease: // of a node
			default:
				o, _ := g.Object(uid)
				if s.followers[ownership.Name{Location: ownership.Location{Kind: kind, Namespace: namespace}, Name: o.Name}] {
					s.queue = append(s.queue, uid)
					continue
				}
				s.aside(g, o)
			}
		}
		return next
	})
	return len(s.queue) > 0
}

// findClaimants queues the claimants of crowded members.
func (s *Selection) findClaimants() {
	if len(s.crowded) == 0 {
		return
	}
	s.queue = append(s.queue, ownership.All(s.view, func(g *ownership.Graph, from ownership.Cursor) ([]ownership.UID, ownership.Cursor) {
		return g.ClaimantsOf(from, s.crowded)
	})...)
	s.crowded = nil
}

// isWanted reports whether all objects of a kind in a namespace become members.
func (s *Selection) isWanted(k ownership.Kind, namespace string) bool {
	return s.kinds[k] || namespace != "" && s.wanted.Namespaces[namespace] ||
		s.wanted.Places[ownership.Location{Kind: k, Namespace: namespace}]
}

// Missing lists the objects that an inventory does not have and a question needs.
type Missing struct {
	// All: the whole cluster must be read.
	All bool
	// Everywhere are the kinds whose objects must be read in all namespaces.
	Everywhere []ownership.Kind
}

// Missing lists the kinds that an inventory, confined to some namespaces, must still read to answer a question about
// the deletion of some objects. All are missing if the deletion may reach an object in another namespace, or a
// cluster-scoped one, whose dependents may be anywhere (unless Beyond has read them), or if the
// CustomResourceDefinition of an object is being deleted, which waits for instances anywhere. For a finalizer of an
// unknown controller, all workloads and pods are missing, among which the controller may be, and all objects of the
// kind, whose managed fields may name it. isBuiltIn reports whether the controller of a finalizer is known.
func (i *Inventory) Missing(uids []ownership.UID, isBuiltIn func(finalizer string) bool) Missing {
	if i.Within == nil {
		return Missing{}
	}
	g := i.Graph()
	s := SelectConcerned(func(read func(*ownership.Graph)) { read(g) }, i.Resources, uids)
	var missing Missing
	for _, o := range s.Members {
		isRead := slices.Contains(i.Within, o.Namespace) || o.Namespace == "" && i.Beyond && o.Kind != definitionKind()
		if !isRead {
			return Missing{All: true}
		}
		if slices.ContainsFunc(o.Finalizers, func(f string) bool { return !isBuiltIn(f) }) {
			missing.Everywhere = append(missing.Everywhere, o.Kind)
		}
	}
	for _, o := range s.Asides {
		if o.Kind == definitionKind() && o.Phase != ownership.Active {
			return Missing{All: true}
		}
	}
	if len(missing.Everywhere) == 0 {
		return missing
	}
	missing.Everywhere = append(append(missing.Everywhere, WorkloadKinds()...), PodKind())
	slices.SortFunc(missing.Everywhere, func(a, b ownership.Kind) int { return strings.Compare(a.String(), b.String()) })
	missing.Everywhere = slices.DeleteFunc(slices.Compact(missing.Everywhere), func(k ownership.Kind) bool {
		r := s.Resources[k]
		return r == nil || !r.Namespaced || slices.Contains(i.Everywhere, k)
	})
	return missing
}
