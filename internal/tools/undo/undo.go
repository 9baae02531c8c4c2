// Package undo plans how a deletion is taken back: which objects are made again, in which order, with
// which references, and which cannot come back and why (R29). It does no I/O and reads no clock.
//
// What a deletion has taken is Kept: each object whole, as it was last. The main flow:
//
//	Closure   from a name or a UID to all that went with it (closure.go)
//	Places    what has to be known of the cluster: what is there now under the names that matter
//	New       a Plan: what is left out (leftout.go), and the rest in waves (order.go)
//	Object    one object as it is created, once its wave has come (object.go)
//	Made …    what has become of it
//	Owners    the references that an object lacks in the end, for a second write (links.go)
//
// Nothing that is made again may be collected. The new owner of an object has another UID than the old
// one, and a reference to the old one is garbage. So an object is created with references to owners that
// exist again, and with no others; and an object without references is never collected (R8). Whoever
// cannot have its owner yet, in a cycle or because the owner could not be made, gets the reference in a
// second write, in this run or in a later one. No collector has to be told to wait.
//
// What is made carries the UID that it had in an annotation, for people: it proves nothing, as everybody may write it who
// takes the name of an object. The caller keeps a journal of what it has made, by which an undo that was interrupted
// recognizes it, and goes on.
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

// Annotation is on all that was made again. Its value is the UID that the object had.
const Annotation = "coppice.dev/undone-from"

// Kept is an object that a deletion has taken, or has taken owner references from.
type Kept struct {
	Resource schema.GroupVersionResource
	// Object is whole, as it was last.
	Object *unstructured.Unstructured
	// Requested is true if the deletion named the object.
	Requested bool
	// Stays is true for an object that was not deleted, but has lost owner references.
	Stays bool
	// Finalizers are those that it had when its deletion began. Nil: those of Object.
	Finalizers []string
	// Revision and Removed say when it was removed; zero if that is not known.
	Revision int64
	Removed  time.Time
}

// UID returns the one that the object had.
func (k *Kept) UID() types.UID { return k.Object.GetUID() }

// Place returns where the object was.
func (k *Kept) Place() Place {
	return Place{k.Object.GroupVersionKind().GroupKind(), k.Object.GetNamespace(), k.Object.GetName()}
}

// finalizers returns those that the object had before its deletion, without the collector's.
func (k *Kept) finalizers() []string {
	all := k.Finalizers
	if all == nil {
		all = k.Object.GetFinalizers()
	}
	return slices.DeleteFunc(slices.Clone(all), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
}

// Place is where an object is: its kind and its name. Namespace is empty for a cluster-scoped kind.
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

// Existing is what is at a place now.
type Existing struct {
	UID         types.UID
	UndoneFrom  types.UID // by the caller's journal, not by Annotation
	Terminating bool
	Owners      []metav1.OwnerReference
}

// Kind is what the server says of a kind.
type Kind struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Status is true if status is a subresource: it is not part of what is created.
	Status bool
}

// Cluster is what is known of the cluster in which objects are made again.
type Cluster struct {
	Kinds    map[schema.GroupKind]Kind
	Existing map[Place]Existing
}

// Options are what the user has asked for.
type Options struct {
	// Status and Finalizers are set as they were. By default, controllers write the status anew, and
	// finalizers are left to those who set them.
	Status, Finalizers bool
	// Relink has references to an owner lead to another object that has its name now.
	Relink bool
}

//nolint:gochecknoglobals // constants of a type that cannot be one
var (
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	podKind        = schema.GroupKind{Kind: "Pod"}
	claimKind      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	volumeKind     = schema.GroupKind{Kind: "PersistentVolume"}
	jobKind        = schema.GroupKind{Group: "batch", Kind: "Job"}
	serviceKind    = schema.GroupKind{Kind: "Service"}
)

// Places returns what has to be known to plan: where the objects were, their namespaces, the volumes of
// claims, and owners that are not among them. Kinds says of which scope an owner is.
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
		for _, owner := range o.GetOwnerReferences() {
			if place, served := placeOf(owner, o.GetNamespace(), kinds); served && !known[owner.UID] {
				all[place] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), Place.compare)
}

// placeOf returns where an owner is, and whether its kind is served.
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
