package reader

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// selection holds the objects of an ownership graph that a question about some objects concerns. Members are
// the objects that the deletion of these objects may delete, and the objects that must be gone before. Asides
// are needed to decide about members, and are not deleted. All owners of every object are included, and
// their owners, too: an owner that is missing does not exist.
type selection struct {
	resources map[ownership.Kind]*inventory.Resource

	members, asides map[ownership.UID]ownership.Object
	queue           []ownership.UID // to become members

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

func newSelection(resources []*inventory.Resource, uids []ownership.UID) *selection {
	s := &selection{
		resources: make(map[ownership.Kind]*inventory.Resource, len(resources)),
		members:   make(map[ownership.UID]ownership.Object), asides: make(map[ownership.UID]ownership.Object),
		queue:      slices.Clone(uids),
		namespaces: map[string]bool{}, kinds: map[ownership.Kind]bool{}, podsOf: map[string]bool{}, named: map[coordinates]bool{},
	}
	for _, r := range resources {
		s.resources[r.OwnerKind()] = r
	}
	return s
}

// grow adds the objects that the queued objects lead to, until it finds no new one.
func (s *selection) grow(g *ownership.Graph) {
	for {
		for len(s.queue) > 0 {
			uid := s.queue[len(s.queue)-1]
			s.queue = s.queue[:len(s.queue)-1]
			if _, known := s.members[uid]; known {
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
func (s *selection) add(g *ownership.Graph, o ownership.Object) {
	s.members[o.UID] = o
	delete(s.asides, o.UID)
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
	if r := s.resources[o.Kind]; r != nil {
		s.named[coordinates{definitionKind(), r.GroupResource().String()}] = true
	}
}

// addOwners adds the owners of an object.
func (s *selection) addOwners(g *ownership.Graph, o ownership.Object) {
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

func (s *selection) aside(g *ownership.Graph, o ownership.Object) {
	_, isMember := s.members[o.UID]
	_, isAside := s.asides[o.UID]
	if !isMember && !isAside {
		s.asides[o.UID] = o
		s.addOwners(g, o)
	}
}

func definitionKind() ownership.Kind {
	return ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}

// defined returns the resource that the CustomResourceDefinition with a name defines, or nil.
func (s *selection) defined(name string) *inventory.Resource {
	for _, r := range s.resources {
		if r.GroupResource().String() == name {
			return r
		}
	}
	return nil
}

// find finds objects by their coordinates, and reports whether it has queued new ones.
func (s *selection) find(g *ownership.Graph) bool {
	var aside []ownership.UID
	for _, uid := range g.Find(func(k ownership.Kind, namespace, name string) bool {
		return s.isWanted(k, namespace) || namespace == "" && s.named[coordinates{k, name}] || isLease(k, namespace)
	}) {
		o, _ := g.Object(uid)
		_, isMember := s.members[uid]
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
func (s *selection) isWanted(k ownership.Kind, namespace string) bool {
	return len(s.kinds) > 0 && s.kinds[k] ||
		len(s.namespaces) > 0 && s.namespaces[namespace] ||
		k == podKind() && s.podsOf[namespace]
}

// isLease reports whether an object is a Lease by which a controller may show that it works. Leases of nodes
// are not.
func isLease(k ownership.Kind, namespace string) bool {
	return k == leaseKind() && namespace != corev1.NamespaceNodeLease
}

func leaseKind() ownership.Kind {
	return ownership.Kind{Group: "coordination.k8s.io", Kind: "Lease"}
}

func podKind() ownership.Kind { return ownership.Kind{Kind: "Pod"} }

// Lack lists the objects that an inventory lacks to answer a question.
type Lack struct {
	// All: the whole cluster must be read.
	All bool
	// Everywhere are the kinds whose objects must be read in all namespaces.
	Everywhere []ownership.Kind
}

// LackOf returns the objects that an inventory confined to some namespaces lacks to answer a question about the
// deletion of some objects. It lacks everything if the deletion may reach an object in another namespace, or a
// cluster-scoped one, whose dependents may be anywhere (unless Beyond has read them), or if the
// CustomResourceDefinition of an object is being deleted, which waits for instances anywhere. For a finalizer of an
// unknown controller it lacks all workloads and pods, among which the controller may be, and all objects of the
// kind, whose managed fields may name it. isBuiltIn is the function of NeighborhoodOptions.
func LackOf(inv *inventory.Inventory, uids []ownership.UID, isBuiltIn func(finalizer string) bool) Lack {
	if inv.Within == nil {
		return Lack{}
	}
	s := newSelection(inv.Resources, uids)
	s.grow(inv.Graph())
	var lack Lack
	for _, o := range s.members {
		isRead := slices.Contains(inv.Within, o.Namespace) || o.Namespace == "" && inv.Beyond && o.Kind != definitionKind()
		if !isRead {
			return Lack{All: true}
		}
		if slices.ContainsFunc(o.Finalizers, func(f string) bool { return !isBuiltIn(f) }) {
			lack.Everywhere = append(lack.Everywhere, o.Kind)
		}
	}
	for _, o := range s.asides {
		if o.Kind == definitionKind() && o.Phase != ownership.Active {
			return Lack{All: true}
		}
	}
	if len(lack.Everywhere) == 0 {
		return lack
	}
	lack.Everywhere = append(append(lack.Everywhere, workloadKinds()...), podKind())
	slices.SortFunc(lack.Everywhere, func(a, b ownership.Kind) int { return strings.Compare(a.String(), b.String()) })
	lack.Everywhere = slices.DeleteFunc(slices.Compact(lack.Everywhere), func(k ownership.Kind) bool {
		r := s.resources[k]
		return r == nil || !r.Namespaced || slices.Contains(inv.Everywhere, k)
	})
	return lack
}

// workloadKinds returns the kinds of workloads that run controllers.
func workloadKinds() []ownership.Kind {
	return []ownership.Kind{
		{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "DaemonSet"},
	}
}
