package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Kinship is what an object is to an owner that looks for its dependents.
type Kinship int

// The kinships. An owner that is being deleted neither adopts nor releases.
const (
	Stranger Kinship = iota // somebody else's, or nobody's and not to be adopted
	Mine                    // the owner controls it, and the selector matches
	Orphan                  // nobody controls it and the selector matches: to be adopted
	Astray                  // the owner controls it, but the selector no longer matches: to be released
)

// KinshipOf is what obj is to the owner. It is decided by controller references alone:
// other owners do not matter.
func KinshipOf(owner Owner, obj metav1.Object) Kinship {
	matches := owner.Selector.Matches(labels.Set(obj.GetLabels())) && (owner.Member == nil || owner.Member(obj))
	ending := owner.GetDeletionTimestamp() != nil
	switch controller := metav1.GetControllerOfNoCopy(obj); {
	case controller != nil && controller.UID != owner.GetUID():
		return Stranger
	case controller != nil && (matches || ending):
		return Mine
	case controller != nil:
		return Astray
	case !matches, ending, obj.GetDeletionTimestamp() != nil, obj.GetNamespace() != owner.GetNamespace():
		return Stranger
	}
	return Orphan
}
