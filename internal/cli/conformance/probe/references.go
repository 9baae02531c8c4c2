package probe

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Object identifies a created object.
type Object struct {
	Kind      Kind
	Namespace string // empty if the object is cluster-scoped
	Name      string
	UID       types.UID
}

// String returns the kind and name.
func (o Object) String() string { return o.Kind.Name + " " + o.Name }

// Ref returns a reference to an owner, with blockOwnerDeletion unset.
func Ref(owner Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.Kind.APIVersion(), Kind: owner.Kind.Name, Name: owner.Name, UID: owner.UID}
}

// Blocking returns a reference to an owner that has to wait for the dependent.
func Blocking(owner Object) metav1.OwnerReference {
	r := Ref(owner)
	r.BlockOwnerDeletion = new(true)
	return r
}

// NotBlocking returns a reference to an owner that does not have to wait for the dependent.
func NotBlocking(owner Object) metav1.OwnerReference {
	r := Ref(owner)
	r.BlockOwnerDeletion = new(false)
	return r
}

// Controlled returns a reference to an owner that is the controller.
func Controlled(owner Object) metav1.OwnerReference {
	r := Blocking(owner)
	r.Controller = new(true)
	return r
}

// Nobody returns a reference to an owner that never existed.
func Nobody(k Kind) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: k.APIVersion(), Kind: k.Name, Name: "nobody", UID: uuid.NewUUID()}
}

// Fakes returns references to n owners that do not exist.
func Fakes(n int) []metav1.OwnerReference {
	all := make([]metav1.OwnerReference, n)
	for i := range all {
		all[i] = Nobody(ConfigMaps)
		all[i].Name = fmt.Sprint("fake-", i)
	}
	return all
}

// InVersion returns a reference with another version.
func InVersion(version string, r metav1.OwnerReference) metav1.OwnerReference {
	group, _, _ := strings.Cut(r.APIVersion, "/")
	r.APIVersion = group + "/" + version
	return r
}

// Option modifies an object before it is created.
type Option func(u *unstructured.Unstructured)

// OwnedBy gives an object owners.
func OwnedBy(owners ...metav1.OwnerReference) Option {
	return func(u *unstructured.Unstructured) { u.SetOwnerReferences(owners) }
}

// WithFinalizers gives an object finalizers.
func WithFinalizers(finalizers ...string) Option {
	return func(u *unstructured.Unstructured) { u.SetFinalizers(finalizers) }
}

// WithLabel gives an object a label.
func WithLabel(key, value string) Option {
	return func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{key: value}) }
}

// Held gives an object a foreign finalizer, Hold.
func Held(u *unstructured.Unstructured) { WithFinalizers(Hold)(u) }

// OnNode binds a pod to a node.
func OnNode(name string) Option {
	return func(u *unstructured.Unstructured) { u.Object["spec"].(map[string]any)["nodeName"] = name }
}

// A foreign finalizer, and the collector's finalizers.
const (
	Hold                = "conformance.example.com/hold"
	ForegroundFinalizer = metav1.FinalizerDeleteDependents
	OrphanFinalizer     = metav1.FinalizerOrphanDependents
)

// The propagation policies.
const (
	Background = metav1.DeletePropagationBackground
	Foreground = metav1.DeletePropagationForeground
	Orphan     = metav1.DeletePropagationOrphan
)

// Policy returns deletion options with a policy.
func Policy(p metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &p}
}
