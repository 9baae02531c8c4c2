// Package undo plans how to undo a deletion: which objects are recreated, in which order, with which references, and
// which cannot be recreated and why (R29). It does no I/O and reads no clock.
//
// Kept is a deleted object, complete, in its last state. The main flow:
//
//	Closure   from a name or a UID to all objects of the same deletion (closure.go)
//	Places    the places in the cluster that must be read before the plan
//	New       a Plan: the objects that are left out (leftout.go), and the rest in waves (order.go)
//	Object    one object in the form in which it is created, once its wave has come (object.go)
//	Made …    the result of the creation
//	Owners    the references that an object still lacks, for a second write (links.go)
//
// The collector must not collect a recreated object. The new owner of an object has another UID than the old one, and
// a reference to the old one is garbage. So an object is created only with references to owners that exist again; and
// an object without references is never collected (R8). If its owner cannot exist yet, in a cycle or because its
// creation failed, the object gets the reference in a second write, in this run or in a later one. No collector has
// to wait for that.
//
// A recreated object has its former UID in an annotation, for people: the annotation proves nothing, because anyone
// who takes the name of an object can write it. The caller keeps a journal of the objects that it has created, by
// which a later undo recognizes the objects of an interrupted one, and continues.
package undo

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Annotation is on all recreated objects. Its value is the UID that the object had.
const Annotation = "coppice.dev/undone-from"

// Kept is an object that a deletion has removed, or whose owner references it has removed.
type Kept struct {
	Resource schema.GroupVersionResource
	// Object is complete, in its last state.
	Object *unstructured.Unstructured
	// Requested is true if the deletion named the object.
	Requested bool
	// Stays is true for an object that was not deleted, but has lost owner references.
	Stays bool
	// Earlier is true if Object is as an earlier attempt to delete it has read it.
	Earlier bool
	// OrphansUnknown is true for an object whose deletion kept its dependents, which are not among the kept objects.
	OrphansUnknown bool
	// Finalizers are the finalizers at the beginning of the deletion. Nil: those in Object.
	Finalizers []string
	// Revision and Removed are the revision and the time of the removal; zero if unknown.
	Revision int64
	Removed  time.Time
}

// UID returns the UID that the object had.
func (k *Kept) UID() types.UID { return k.Object.GetUID() }

// Place returns the place of the object.
func (k *Kept) Place() Place {
	return Place{k.Object.GroupVersionKind().GroupKind(), k.Object.GetNamespace(), k.Object.GetName()}
}

// definition returns the place of the CustomResourceDefinition of the object, if it has one.
func (k *Kept) definition() Place {
	return Place{Kind: definitionKind, Name: k.Resource.GroupResource().String()}
}

// Scopes returns the places of the namespace and of the definition whose deletion removes the object. It may have neither.
func (k *Kept) Scopes() []Place {
	return []Place{{Kind: namespaceKind, Name: k.Object.GetNamespace()}, k.definition()}
}

// finalizers returns the finalizers that the object had before its deletion, without the collector's.
func (k *Kept) finalizers() []string {
	all := k.Finalizers
	if all == nil {
		all = k.Object.GetFinalizers()
	}
	return slices.DeleteFunc(slices.Clone(all), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
}

// Place is the kind, the namespace and the name of an object. Namespace is empty for a cluster-scoped kind.
type Place struct {
	Kind            schema.GroupKind
	Namespace, Name string
}

// String returns, for example, "Deployment.apps shop/web".
func (p Place) String() string {
	name := p.Name
	if p.Namespace != "" {
		name = p.Namespace + "/" + name
	}
	return p.Kind.String() + " " + name
}

// compare orders places by kind and name.
func (p Place) compare(q Place) int {
	return slices.Compare(
		[]string{p.Kind.Group, p.Kind.Kind, p.Namespace, p.Name}, []string{q.Kind.Group, q.Kind.Kind, q.Namespace, q.Name})
}

// Existing is the object that is at a place now.
type Existing struct {
	UID         types.UID
	UndoneFrom  types.UID // by the caller's journal, not by Annotation
	Terminating bool
	Owners      []metav1.OwnerReference
	// VolumeName is the volume to which a claim is bound. Only the claims of Cluster.OtherClaims need it.
	VolumeName string
}

// Kind is the discovery information about a kind.
type Kind struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Status is true if the kind has a status subresource: a create request ignores the status.
	Status bool
}

// Cluster is the state of the cluster in which objects are recreated.
type Cluster struct {
	Kinds    map[schema.GroupKind]Kind
	Existing map[Place]Existing
	// Unread maps the places that could not be read to the reason: an object may be there.
	Unread map[Place]string
	// UnreadGroups maps the API groups whose kinds could not be read to the reason.
	UnreadGroups map[string]string
}

// OtherClaims returns the places of claims that exist, and that only Options.Relink takes for the claims of kept volumes, or for
// kept claims.
func (c Cluster) OtherClaims(kept []Kept) []Place {
	all := map[Place]bool{}
	for n := range kept {
		place, former := kept[n].Place(), kept[n].UID()
		if place.Kind == volumeKind {
			place, former = claimed(kept[n].Object)
		}
		e, there := c.Existing[place]
		if place.Kind == claimKind && there && e.UID != former && e.UndoneFrom != former {
			all[place] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), Place.compare)
}

// unread returns the reason why it is unknown whether an object is at a place; empty if it is known.
func (c Cluster) unread(p Place) string {
	if _, served := c.Kinds[p.Kind]; !served {
		return c.unreadGroup(p.Kind)
	}
	return c.Unread[p]
}

// unreadGroup returns the reason why it is unknown whether the server serves a kind; empty if it is known.
func (c Cluster) unreadGroup(kind schema.GroupKind) string {
	why, unread := c.UnreadGroups[kind.Group]
	if !unread {
		return ""
	}
	return "the API group " + kind.Group + " does not answer: " + why
}

// Options are the user's choices.
type Options struct {
	// Status and Finalizers restore the status and the finalizers. By default, controllers write the status again, and
	// finalizers are left to the controllers that set them.
	Status, Finalizers bool
	// Relink makes another object that has the name of an owner now the new owner.
	Relink bool
}

var (
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	podKind        = schema.GroupKind{Kind: "Pod"}
	claimKind      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	volumeKind     = schema.GroupKind{Kind: "PersistentVolume"}
	jobKind        = schema.GroupKind{Group: "batch", Kind: "Job"}
	serviceKind    = schema.GroupKind{Kind: "Service"}
)

// Places returns the places to read before the plan: for the objects, their namespaces, the volumes of claims, the claims
// of volumes, and the owners that are not among the objects. kinds has the scopes of owners.
func Places(kept []Kept, kinds map[schema.GroupKind]Kind) []Place {
	all := map[Place]bool{}
	known := make(map[types.UID]bool, len(kept))
	for n := range kept {
		known[kept[n].UID()] = true
	}
	for n := range kept {
		o := kept[n].Object
		all[kept[n].Place()] = true
		if namespace := o.GetNamespace(); namespace != "" {
			all[Place{Kind: namespaceKind, Name: namespace}] = true
		}
		if volume := volumeOf(&kept[n]); volume != "" {
			all[Place{Kind: volumeKind, Name: volume}] = true
		}
		if claim, bound := claimed(o); kept[n].Place().Kind == volumeKind && bound != "" {
			all[claim] = true
		}
		for _, owner := range o.GetOwnerReferences() {
			if place, served := placeOf(owner, o.GetNamespace(), kinds); served && !known[owner.UID] {
				all[place] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), Place.compare)
}

// placeOf returns the place of an owner, and whether the server serves its kind.
func placeOf(owner metav1.OwnerReference, namespace string, kinds map[schema.GroupKind]Kind) (Place, bool) {
	group, _, hasGroup := strings.Cut(owner.APIVersion, "/")
	if !hasGroup {
		group = ""
	}
	place := Place{schema.GroupKind{Group: group, Kind: owner.Kind}, namespace, owner.Name}
	kind, served := kinds[place.Kind]
	if !kind.Namespaced {
		place.Namespace = ""
	}
	return place, served
}

// volumeOf returns the name of the volume that a claim is bound to.
func volumeOf(k *Kept) string {
	if k.Place().Kind != claimKind {
		return ""
	}
	name, _, _ := unstructured.NestedString(k.Object.Object, "spec", "volumeName")
	return name
}
