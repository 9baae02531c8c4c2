// Package ownerreferences checks owner references at admission: a client that sets one decides when the
// object is deleted and, with blockOwnerDeletion, when its owner may be deleted.
//
// Check implements the rules, without I/O: it returns the errors of a write, regardless of the user, and
// the permissions that its user needs. Admission asks the authorizer for these permissions, and names the
// missing RBAC rule in its refusal. It has the name of Kubernetes' plug-in
// OwnerReferencesPermissionEnforcement, and checks more:
//
//   - A change of an object's owner references needs the permission to delete the object,
//     unless it only removes references or makes them stop blocking.
//   - A reference that begins to block its owner needs update on the owner's finalizers.
//   - An impossible owner is refused: one of a kind that is not served, a namespaced owner
//     of a cluster-scoped object, the object itself.
//   - An object has at most 64 owner references: each may cost the collector a read.
//   - Nodes do not choose the owners of nodes.
//
// Existing references are not checked: an object that breaks a rule can still be changed.
//
// BacklogLimit refuses references to absent owners in namespaces that already have many of them.
package ownerreferences

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxReferences is the maximum number of owner references of an object.
const MaxReferences = 64

// Write describes a write to Check.
type Write struct {
	Kind       schema.GroupKind
	Resource   schema.GroupResource
	Namespace  string // of the object; "" if it is cluster-scoped
	Name       string // "" if it will be generated
	UID        types.UID
	Creates    bool
	ByNode     bool // the writer is a node
	Old, Wants []metav1.OwnerReference
}

// Served returns the resource of a kind; ok is false for a kind that is not served.
type Served func(schema.GroupKind) (r ServedResource, ok bool)

// ServedResource is the resource that serves the objects of a kind.
type ServedResource struct {
	Resource   string
	Namespaced bool
}

// Permission is a permission that a write needs.
type Permission struct {
	Verb        string
	Resource    schema.GroupResource
	Subresource string
	Namespace   string // "" for a cluster-wide permission
	Name        string
	// Why begins the error for a user without the permission.
	Why string
}

// Rule returns the RBAC rule that grants the permission, as it is written in a Role.
func (r Permission) Rule() string {
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return fmt.Sprintf(`{apiGroups: [%q], resources: [%q], verbs: [%q]}`, r.Resource.Group, resource, r.Verb)
}

// Scope describes the kind of role that needs the rule.
func (r Permission) Scope() string {
	if r.Namespace == "" {
		return "in a ClusterRole bound by a ClusterRoleBinding"
	}
	return fmt.Sprintf("in a Role in namespace %q", r.Namespace)
}

// Check returns the permissions that a write needs, and its errors.
func Check(w Write, served Served) ([]Permission, field.ErrorList) {
	if slices.EqualFunc(w.Old, w.Wants, equal) {
		return nil, nil
	}
	path := field.NewPath("metadata", "ownerReferences")
	var errs field.ErrorList
	if w.ByNode && w.Resource == (schema.GroupResource{Resource: "nodes"}) {
		errs = append(errs, field.Forbidden(path, "nodes may not set the owners of nodes"))
	}
	if len(w.Wants) > MaxReferences && len(w.Wants) > len(w.Old) {
		return nil, append(errs, field.TooMany(path, len(w.Wants), MaxReferences)) // before any of them is looked up
	}
	var permissions []Permission
	if !w.Creates && !onlyRemoves(w.Old, w.Wants) {
		permissions = append(permissions, Permission{
			Verb: "delete", Resource: w.Resource, Namespace: w.Namespace, Name: w.Name,
			Why: "cannot set an ownerRef on a resource you can't delete",
		})
	}
	for i, ref := range w.Wants {
		before, had := find(w.Old, ref.UID)
		begins := !had || before.APIVersion != ref.APIVersion || before.Kind != ref.Kind || before.Name != ref.Name
		if begins {
			errs = append(errs, w.checkOwner(ref, path.Index(i), served)...)
		}
		if blocks(ref) && (begins || !blocks(before)) {
			if permission, ok := w.permissionToBlock(ref, served); ok {
				permissions = append(permissions, permission)
			}
		}
	}
	return permissions, errs
}

// checkOwner returns the errors for an impossible owner.
func (w Write) checkOwner(ref metav1.OwnerReference, at *field.Path, served Served) field.ErrorList {
	kind, group, err := kindOf(ref)
	if err != nil {
		return nil // the registry validates the form of references
	}
	resource, ok := served(kind)
	switch {
	case !ok:
		return field.ErrorList{field.Invalid(at.Child("kind"), ref.Kind, fmt.Sprintf("kind %s is not served in %s, so it cannot be an owner", ref.Kind, group))}
	case w.Namespace == "" && resource.Namespaced:
		return field.ErrorList{field.Invalid(at, ref.Kind, fmt.Sprintf("a cluster-scoped object cannot be owned by a %s, which is namespaced", ref.Kind))}
	case ref.UID == w.UID && w.UID != "":
		return field.ErrorList{field.Invalid(at.Child("uid"), ref.UID, "an object cannot own itself")}
	case kind == w.Kind && ref.Name == w.Name && w.Name != "":
		// No other object can have this kind, namespace and name: the owner is absent, or the object
		// itself.
		return field.ErrorList{field.Invalid(at.Child("name"), ref.Name, "an object cannot own itself, nor be owned by an earlier object of its kind and name")}
	default:
		return nil
	}
}

// permissionToBlock returns the permission to block the deletion of an owner; none for an impossible owner,
// because the write is refused anyway.
func (w Write) permissionToBlock(ref metav1.OwnerReference, served Served) (Permission, bool) {
	kind, _, err := kindOf(ref)
	if err != nil {
		return Permission{}, false
	}
	resource, ok := served(kind)
	if !ok {
		return Permission{}, false
	}
	r := Permission{
		Verb: "update", Resource: schema.GroupResource{Group: kind.Group, Resource: resource.Resource}, Subresource: "finalizers", Name: ref.Name,
		Why: "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
	}
	if resource.Namespaced {
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

// onlyRemoves reports whether a change only removes references and makes references stop blocking, without
// reordering the others.
func onlyRemoves(old, wants []metav1.OwnerReference) bool {
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

// equal reports whether references are equivalent: an unset flag is false.
func equal(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		isTrue(a.Controller) == isTrue(b.Controller) && blocks(a) == blocks(b)
}
