package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

// Namespaces differ from every other resource in how they are deleted: besides metadata.finalizers there is
// spec.finalizers, which only /finalize changes, and a namespace stays until both lists are empty (NS-23). The write
// that sets the deletionTimestamp also sets the phase, which makes admission refuse new contents.
func namespaces() registry.Resource {
	return registry.Define[corev1.Namespace, corev1.NamespaceList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Namespace",
		Plural:              "namespaces",
		ShortNames:          []string{"ns"},
		ValidateName:        apivalidation.ValidateNamespaceName,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
		// A single mistaken request would delete everything.
		NoDeleteCollection: true,
	}, []table.Column{
		table.Text("Status", "Whether the namespace is being deleted.", func(ns *corev1.Namespace) string { return string(ns.Status.Phase) }),
		table.Age(),
	}, registry.Strategy[*corev1.Namespace]{
		Default:              defaultNamespace,
		PrepareForCreate:     createNamespace,
		PrepareForUpdate:     func(ns, old *corev1.Namespace) { ns.Spec.Finalizers = old.Spec.Finalizers },
		Canonicalize:         labelNamespace,
		ValidateCreate:       validateNewNamespace,
		ValidateStatusUpdate: validateNamespaceStatus,
		CopyStatus:           registry.CopyField(func(ns *corev1.Namespace) *corev1.NamespaceStatus { return &ns.Status }),
		SelectableFields:     func(ns *corev1.Namespace) fields.Set { return fields.Set{"status.phase": string(ns.Status.Phase)} },
		Subresources: func(r *registry.REST) map[string]rest.Storage {
			return map[string]rest.Storage{"finalize": finalizeEndpoint(r)}
		},
	})
}

func defaultNamespace(ns *corev1.Namespace) {
	labelNamespace(ns)
	registry.SetDefault(&ns.Status.Phase, corev1.NamespaceActive)
}

// labelNamespace sets the label that selects a namespace by its name, whatever the client sent (NS-13). It runs again
// after a name was generated.
func labelNamespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// createNamespace adds the entry of spec.finalizers that the namespace controller removes
// when the namespace is empty.
func createNamespace(ns *corev1.Namespace) {
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return
	}
	ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// validateNamespaceStatus checks that the phase agrees with the deletionTimestamp.
func validateNamespaceStatus(ns, _ *corev1.Namespace) field.ErrorList {
	path := field.NewPath("status", "Phase") // Kubernetes writes it like this
	switch {
	case ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case ns.DeletionTimestamp != nil && ns.Status.Phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// finalizeEndpoint returns /finalize, which changes only spec.finalizers. The update that removes the last reason to
// wait removes the namespace (R18).
func finalizeEndpoint(r *registry.REST) rest.Storage {
	finalizers := registry.CopyField(func(ns *corev1.Namespace) *[]corev1.FinalizerName { return &ns.Spec.Finalizers })
	return registry.UpdateOnly(registry.Subresource(r, finalizers, "status", validateFinalize))
}

func validateFinalize(ns, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, f := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(f, path.Index(i))...)
	}
	return errs
}

// validateNewNamespace checks the finalizers of a new namespace. As in Kubernetes, the errors point to the whole list.
func validateNewNamespace(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for _, f := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(f, field.NewPath("spec", "finalizers"))...)
	}
	return errs
}

// validateFinalizer checks the name of a finalizer of a namespace's contents.
func validateFinalizer(name corev1.FinalizerName, at *field.Path) field.ErrorList {
	return append(apivalidation.ValidateFinalizerName(string(name), at), registry.ValidateFinalizerDomain(string(name), at)...)
}
