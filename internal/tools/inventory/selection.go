package inventory

import (
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

	queue []ownership.UID // to become members

	// Objects to find by their coordinates.
	namespaces map[string]bool         // all their objects become members
	kinds      map[ownership.Kind]bool // all their objects become members
	podsOf     map[string]bool         // the pods of a namespace become members
	named      map[coordinates]bool    // asides
}

// coordinates identify a cluster-scoped object.
type coordinates struct {
	kind ownership.Kind
	name string
}

// SelectConcerned selects the objects of a graph that a question about some objects concerns.
func SelectConcerned(g *ownership.Graph, resources []*Resource, uids []ownership.UID) *Selection {
	s := &Selection{
		Resources: make(map[ownership.Kind]*Resource, len(resources)),
		Members:   make(map[ownership.UID]ownership.Object), Asides: make(map[ownership.UID]ownership.Object),
		queue:      slices.Clone(uids),
		namespaces: map[string]bool{}, kinds: map[ownership.Kind]bool{}, podsOf: map[string]bool{}, named: map[coordinates]bool{},
	}
	for _, r := range resources {
		s.Resources[r.OwnerKind()] = r
	}
	s.grow(g)
	return s
}

// grow adds the objects that the queued objects lead to, until it finds no new one.
func (s *Selection) grow(g *ownership.Graph) {
	for {
		for len(s.queue) > 0 {
			uid := s.queue[len(s.queue)-1]
			s.queue = s.queue[:len(s.queue)-1]
			if _, known := s.Members[uid]; known {
				continue
			}
			if o, observed := g.Object(uid); observed {
				s.add(g, o)
			}
		}
		if !s.find(g) {
			return
		}
	}
}

// add makes an object a member.
func (s *Selection) add(g *ownership.Graph, o ownership.Object) {
	s.Members[o.UID] = o
	delete(s.Asides, o.UID)
	s.queue = append(s.queue, g.Claimants(o.UID)...)
	s.addOwners(g, o)
	switch o.Kind {
	case ownership.Kind{Kind: "Namespace"}:
		s.namespaces[o.Name] = true
	case definitionKind():
		if r := s.defined(o.Name); r != nil {
			s.kinds[r.OwnerKind()] = true
		}
	case ownership.Kind{Kind: "PersistentVolumeClaim"}:
		s.podsOf[o.Namespace] = true // they may use it
	}
	if o.Namespace != "" {
		s.named[coordinates{ownership.Kind{Kind: "Namespace"}, o.Namespace}] = true
	}
	if r := s.Resources[o.Kind]; r != nil {
		s.named[coordinates{definitionKind(), r.GroupResource().String()}] = true
	}
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
func (s *Selection) find(g *ownership.Graph) bool {
	var aside []ownership.UID
	for _, uid := range g.Find(func(k ownership.Kind, namespace string, name func() string) bool {
		return s.isWanted(k, namespace) || namespace == "" && s.named[coordinates{k, name()}] || isLease(k, namespace)
	}) {
		o, _ := g.Object(uid)
		_, isMember := s.Members[uid]
		switch {
		case isMember:
		case s.isWanted(o.Kind, o.Namespace):
			s.queue = append(s.queue, uid)
		default:
			aside = append(aside, uid)
		}
	}
	for _, uid := range aside {
		o, _ := g.Object(uid)
		s.aside(g, o)
	}
	return len(s.queue) > 0
}

// isWanted reports whether all objects of a kind in a namespace become members.
func (s *Selection) isWanted(k ownership.Kind, namespace string) bool {
	return len(s.kinds) > 0 && s.kinds[k] ||
		len(s.namespaces) > 0 && s.namespaces[namespace] ||
		k == PodKind() && s.podsOf[namespace]
}

// isLease reports whether an object is a Lease by which a controller may show that it works. Leases of nodes
// are not.
func isLease(k ownership.Kind, namespace string) bool {
	return k == LeaseKind() && namespace != corev1.NamespaceNodeLease
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
	s := SelectConcerned(i.Graph(), i.Resources, uids)
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
