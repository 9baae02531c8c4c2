// Package inventory holds a snapshot of a cluster, from the metadata of its objects: the resources that
// are served, the objects, and the resources that could not be read. The tools that predict, explain and
// check deletions (coppice preview, explain, audit, graph) read only an Inventory, so that they work on
// any cluster, and for users with rights to only a part of it.
//
// The main flow: package reader lists a cluster into an Inventory, in parallel and without changing
// anything; Graph makes an ownership graph of it, from which package verdict decides as for the
// collector. An Inventory is not changed once it is complete, and may be read concurrently.
package inventory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Inventory is the content of a cluster at the time of its reading.
type Inventory struct {
	// Read is the time at which the reading began.
	Read time.Time
	// Resources are the served resources, whether or not their objects could be listed, sorted by
	// group and resource. Each is there once, in the version that was read.
	Resources []*Resource
	// Objects are sorted by group, resource, namespace and name.
	Objects []*Object
	// Within are the namespaces to which the reading was confined; nil if it was not. Leases, objects of the kinds
	// in Everywhere and cluster-scoped objects are read anyway. If Beyond is true, objects of other namespaces that
	// have an owner of a cluster-scoped kind are read, too.
	Within     []string
	Beyond     bool
	Everywhere []ownership.Kind
	// Unread lists the resources that could not be read. They limit every conclusion about the others.
	Unread []Unread

	// The objects that are kept with more than their metadata, by uid. A nil map was not read.
	Namespaces map[ownership.UID]*corev1.Namespace
	Pods       map[ownership.UID]*Pod

	byUID  map[ownership.UID]*Object
	byKind map[ownership.Kind]*Resource
}

// Resource is a resource that the cluster serves.
type Resource struct {
	schema.GroupVersionResource

	Kind       string
	Namespaced bool
	// ShortNames, Singular and Categories are other names for it.
	ShortNames, Categories []string
	Singular               string
	// Versions are the served versions, sorted; nil if they are not known.
	Versions []string
	// Deletable resources have the verb delete. Objects of other resources exist as long as their server does.
	Deletable bool
}

// OwnerKind returns the kind as owner references name it.
func (r *Resource) OwnerKind() ownership.Kind { return ownership.Kind{Group: r.Group, Kind: r.Kind} }

// Object is the metadata of one object, as far as deletion depends on it.
type Object struct {
	ownership.Object // identity, phase, finalizers, owners

	Resource *Resource
	Created  time.Time
	// Grace is the grace period from the request for the deletion; zero for an object that is not being
	// deleted.
	Grace  time.Duration
	Labels Labels
	// SetBy has the field managers of finalizers and owner references, if they matter; nil for most objects.
	SetBy *SetBy
}

// SetBy are the field managers of an object that matter to its deletion.
type SetBy struct {
	// Finalizers are the field managers that have set finalizers.
	Finalizers []Manager
	// Owners are the field managers, other than Kubernetes' own controllers, that have set owner references
	// which block the deletion of an owner.
	Owners []string
}

// Deadline returns the deletionTimestamp: the time of the request for the deletion, plus its grace period.
// It is zero for an object that is not being deleted.
func (o *Object) Deadline() time.Time {
	if o.Due == 0 {
		return time.Time{}
	}
	return time.Unix(o.Due, 0)
}

// Managers returns the field managers that have set finalizers of the object.
func (o *Object) Managers() []Manager {
	if o.SetBy == nil {
		return nil
	}
	return o.SetBy.Finalizers
}

// Manager is a field manager of an object's finalizers.
type Manager struct {
	Name string
	// Time is the time of its last write to the object.
	Time       time.Time
	Finalizers []string
}

// Unread is a resource, or a group, that could not be read.
type Unread struct {
	// Resource could not be listed. Its field Resource is empty for a group for which discovery did
	// not answer.
	Resource schema.GroupVersionResource
	// Namespace is the namespace in which it could not be listed; empty for all.
	Namespace string
	// Except are namespaces in which it could be listed, although not in all.
	Except []string
	// Why is the server's answer in words; Forbidden is true if it was a refusal.
	Why       string
	Forbidden bool
}

// String returns, for example, "secrets in namespace shop: forbidden".
func (u Unread) String() string {
	what := "group " + u.Resource.GroupVersion().String()
	if u.Resource.Resource != "" {
		what = u.Resource.GroupResource().String()
	}
	switch {
	case u.Namespace != "":
		what += " in namespace " + u.Namespace
	case len(u.Except) > 0:
		what += " outside of namespace " + strings.Join(u.Except, ", ")
	}
	return what + ": " + u.Why
}

// TextsOf describes resources that were not read, for people.
func TextsOf(unread []Unread) []string {
	texts := make([]string, 0, len(unread))
	for _, u := range unread {
		texts = append(texts, u.String())
	}
	return texts
}

// Index completes an inventory whose exported fields are set: it sorts the objects. The methods below work only
// after it.
func (i *Inventory) Index() {
	slices.SortFunc(i.Objects, func(a, b *Object) int {
		if c := a.compareName(b.Resource, b.Namespace, b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	i.byUID = make(map[ownership.UID]*Object, len(i.Objects))
	i.byKind = make(map[ownership.Kind]*Resource, len(i.Resources))
	for _, o := range i.Objects {
		i.byUID[o.UID] = o
	}
	for _, r := range i.Resources {
		i.byKind[r.OwnerKind()] = r
	}
}

// Object returns the object with a uid, or nil.
func (i *Inventory) Object(uid ownership.UID) *Object { return i.byUID[uid] }

// Named returns the object with a name, or nil. namespace is empty for a cluster-scoped object.
func (i *Inventory) Named(r *Resource, namespace, named string) *Object {
	at, found := slices.BinarySearchFunc(i.Objects, named, func(o *Object, named string) int {
		return o.compareName(r, namespace, named)
	})
	if !found {
		return nil
	}
	return i.Objects[at]
}

// compareName compares the names of two objects, in the order of Inventory.Objects. A sort of many objects calls it often:
// most of them have the same resource and namespace, and it compares no more than it must.
func (o *Object) compareName(r *Resource, namespace, named string) int {
	if o.Resource != r {
		if c := o.Resource.Compare(r); c != 0 {
			return c
		}
	}
	if c := strings.Compare(o.Namespace, namespace); c != 0 {
		return c
	}
	return strings.Compare(o.Name, named)
}

// Compare orders resources by group and name.
func (r *Resource) Compare(other *Resource) int {
	return cmp.Or(strings.Compare(r.Group, other.Group), strings.Compare(r.Resource, other.Resource))
}

// Resource returns the resource whose objects are of a kind, or nil.
func (i *Inventory) Resource(kind ownership.Kind) *Resource { return i.byKind[kind] }

// Complete reports whether all objects of a resource in a namespace were read, or in all namespaces
// if it is empty: then an object that is missing here did not exist.
func (i *Inventory) Complete(r *Resource, namespace string) bool {
	if i.Within != nil && r.Namespaced && !slices.Contains(i.Within, namespace) && !slices.Contains(i.Everywhere, r.OwnerKind()) {
		return false
	}
	for _, u := range i.Unread {
		isOfIt := u.Resource.GroupResource() == r.GroupResource() || u.Resource.Resource == "" && u.Resource.Group == r.Group
		if isOfIt && (namespace == "" || u.Namespace == namespace || u.Namespace == "" && !slices.Contains(u.Except, namespace)) {
			return false
		}
	}
	return true
}

// Graph makes an ownership graph of the objects and the scopes of their kinds. An owner that is missing
// in a complete list is absent (R3): the list stands for the collector's live read of the owner.
func (i *Inventory) Graph() *ownership.Graph {
	g := ownership.New()
	for _, r := range i.Resources {
		scope := ownership.Cluster
		if r.Namespaced {
			scope = ownership.Namespaced
		}
		g.SetScope(r.OwnerKind(), scope)
	}
	for _, o := range i.Objects {
		g.Observe(o.Object)
	}
	for _, o := range i.Objects {
		for _, owner := range g.Owners(o.UID) {
			r := i.Resource(owner.Claim.Kind)
			if owner.Presence == ownership.Unknown && owner.Obstacle == ownership.Verifiable && r != nil && i.Complete(r, owner.Claim.Namespace) {
				g.Resolve(owner.Claim, ownership.Absent, ownership.Active)
			}
		}
	}
	return g
}
