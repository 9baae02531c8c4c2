// Package owners guards owner references: whoever sets one decides when the object is
// deleted, and, with blockOwnerDeletion, when its owner may go.
//
// Judge is the rules, without I/O: what is wrong with a write as such, whoever makes it,
// and which rights the writer needs. Admission asks for these rights, and refuses with the
// RBAC rule that is missing. The checks are stricter than those of the field:
//
//   - A change of an object's owner references needs the right to delete the object,
//     unless it takes references away or makes them stop blocking.
//   - A reference that begins to block its owner needs update on the owner's finalizers.
//   - An owner that cannot be one is refused: of a kind that is not served, a namespaced
//     one of a cluster-scoped object, the object itself.
//   - An object has 64 references at most. More cost a collector a read each.
//   - Nodes do not choose the owners of nodes.
//
// What was there before is not judged: an object that breaks a rule can still be changed.
package ownerreferences

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limit is how many owner references an object may have.
const Limit = 64

// Write is a write of an object, as far as its owner references are concerned.
type Write struct {
	Kind       schema.GroupKind
	Resource   schema.GroupResource
	Namespace  string // of the object; "" if it is cluster-scoped
	Name       string // "" if it is yet to be made up
	UID        types.UID
	Creates    bool
	ByNode     bool // the writer is a node
	Old, Wants []metav1.OwnerReference
}

// Served tells where the objects of a kind are served: their resource and whether they
// have namespaces; ok is false for a kind that is not served.
type Served func(schema.GroupKind) (s Where, ok bool)

// Where is where the objects of a kind are served.
type Where struct {
	Resource   string
	Namespaced bool
}

// Right is a right that a write needs.
type Right struct {
	Verb        string
	Resource    schema.GroupResource
	Subresource string
	Namespace   string // "" for a right that is needed cluster-wide
	Name        string
	// Why is the beginning of what a writer without the right is told.
	Why string
}

// Rule is the RBAC rule that gives the right, as it is written in a Role.
func (r Right) Rule() string {
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf(`{apiGroups: [%q], resources: [%q], verbs: [%q]}`, r.Resource.Group, resource, r.Verb)
}

// Place is where that rule is needed, in words.
func (r Right) Place() string {
	if r.Namespace == "" {
		return "in a ClusterRole that is bound cluster-wide"
	}
	return fmt.Sprintf("in a Role in namespace %q", r.Namespace)
}

// Judge tells what is wrong with a write, and what rights it needs.
func Judge(w Write, served Served) ([]Right, field.ErrorList) {
	if slices.EqualFunc(w.Old, w.Wants, equal) {
		return nil, nil
	}
	path := field.NewPath("metadata", "ownerReferences")
	var errs field.ErrorList
	if w.ByNode && w.Resource == (schema.GroupResource{Resource: "nodes"}) {
		errs = append(errs, field.Forbidden(path, "nodes do not choose the owners of nodes"))
	}
	if len(w.Wants) > Limit && len(w.Wants) > len(w.Old) {
		errs = append(errs, field.TooMany(path, len(w.Wants), Limit))
	}
	var rights []Right
	if !w.Creates && !onlyLess(w.Old, w.Wants) {
		rights = append(rights, Right{
			Verb: "delete", Resource: w.Resource, Namespace: w.Namespace, Name: w.Name,
			Why: "cannot set an ownerRef on a resource you can't delete",
		})
	}
	for i, ref := range w.Wants {
		before, had := find(w.Old, ref.UID)
		begins := !had || before.APIVersion != ref.APIVersion || before.Kind != ref.Kind || before.Name != ref.Name
		if begins {
			errs = append(errs, w.judgeOwner(ref, path.Index(i), served)...)
		}
		if blocks(ref) && (begins || !blocks(before)) {
			if right, ok := w.rightToBlock(ref, served); ok {
				rights = append(rights, right)
			}
		}
	}
	return rights, errs
}

// judgeOwner tells why an owner cannot be one.
func (w Write) judgeOwner(ref metav1.OwnerReference, at *field.Path, served Served) field.ErrorList {
	kind, group, err := kindOf(ref)
	if err != nil {
		return nil // the form of references is the registry's to check
	}
	where, ok := served(kind)
	switch {
	case !ok:
		return field.ErrorList{field.Invalid(at.Child("kind"), ref.Kind, fmt.Sprintf("no kind %s is served in %s: nothing can be owned by one", ref.Kind, group))}
	case w.Namespace == "" && where.Namespaced:
		return field.ErrorList{field.Invalid(at, ref.Kind, fmt.Sprintf("a cluster-scoped object cannot be owned by a %s, which has a namespace", ref.Kind))}
	case ref.UID == w.UID && w.UID != "":
		return field.ErrorList{field.Invalid(at.Child("uid"), ref.UID, "an object cannot own itself")}
	case kind == w.Kind && ref.Name == w.Name && w.Name != "":
		// At its own coordinates there is nothing else: the owner is absent, or itself.
		return field.ErrorList{field.Invalid(at.Child("name"), ref.Name, "an object cannot own itself, nor be owned by one that had its name before")}
	default:
		return nil
	}
}

// rightToBlock is what is needed to hold up the deletion of an owner. Of an owner that
// cannot be one, nothing is needed: the write is refused anyway.
func (w Write) rightToBlock(ref metav1.OwnerReference, served Served) (Right, bool) {
	kind, _, err := kindOf(ref)
	if err != nil {
		return Right{}, false
	}
	where, ok := served(kind)
	if !ok {
		return Right{}, false
	}
	r := Right{
		Verb: "update", Resource: schema.GroupResource{Group: kind.Group, Resource: where.Resource}, Subresource: "finalizers", Name: ref.Name,
		Why: "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
	}
	if where.Namespaced {
		r.Namespace = w.Namespace
	}
	return r, true
}

func kindOf(ref metav1.OwnerReference) (kind schema.GroupKind, group string, err error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return kind, "", err
	}
	group = "API group " + gv.Group
	if gv.Group == "" {
		group = "the core API group"
	}
	return gv.WithKind(ref.Kind).GroupKind(), group, nil
}

// onlyLess tells whether a change does nothing but to take references away and to make
// references stop blocking. What is left is in the order that it was in.
func onlyLess(old, wants []metav1.OwnerReference) bool {
	rest := old
	for _, ref := range wants {
		i := slices.IndexFunc(rest, func(o metav1.OwnerReference) bool {
			return equal(o, ref) || equal(unblocked(o), unblocked(ref)) && !blocks(ref)
		})
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
	}
	return true
}

func unblocked(ref metav1.OwnerReference) metav1.OwnerReference {
	ref.BlockOwnerDeletion = nil
	return ref
}

func find(refs []metav1.OwnerReference, uid types.UID) (metav1.OwnerReference, bool) {
	i := slices.IndexFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == uid })
	if i < 0 {
		return metav1.OwnerReference{}, false
	}
	return refs[i], true
}

func blocks(ref metav1.OwnerReference) bool { return isTrue(ref.BlockOwnerDeletion) }

func isTrue(b *bool) bool { return b != nil && *b }

// equal compares what references mean: a flag that is not set is one that is false.
func equal(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		isTrue(a.Controller) == isTrue(b.Controller) && blocks(a) == blocks(b)
}
