// Package storage is the API group storage.k8s.io: StorageClasses, and the kinds through which CSI drivers, schedulers
// and nodes coordinate volumes.
package storage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Group returns the API group storage.k8s.io/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: storagev1.SchemeGroupVersion,
		AddToScheme:  storagev1.AddToScheme,
		Resources: []registry.Resource{
			storageClasses(), volumeAttributesClasses(), volumeAttachments(), csiDrivers(), csiNodes(), csiStorageCapacities(),
		},
	}
}

// IsDefaultClassAnnotation marks the class of volume claims that name no class.
const IsDefaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

func storageClasses() registry.Resource {
	return registry.Define[storagev1.StorageClass, storagev1.StorageClassList](registry.Resource{
		GroupVersion:        storagev1.SchemeGroupVersion,
		Kind:                "StorageClass",
		Plural:              "storageclasses",
		ShortNames:          []string{"sc"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{
		storageClassName(),
		table.Text("Provisioner", "Provisioner of the volumes.", func(s *storagev1.StorageClass) string { return s.Provisioner }),
		table.Text("ReclaimPolicy", "What happens to a volume when its claim is deleted.", func(s *storagev1.StorageClass) string {
			return string(ptr.Deref(s.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
		}),
		table.Text("VolumeBindingMode", "When a claim is bound.", func(s *storagev1.StorageClass) string {
			return string(ptr.Deref(s.VolumeBindingMode, storagev1.VolumeBindingImmediate))
		}),
		table.Text("AllowVolumeExpansion", "Whether volumes can grow.", func(s *storagev1.StorageClass) string {
			if ptr.Deref(s.AllowVolumeExpansion, false) {
				return "true"
			}
			return "false"
		}),
		table.Age(),
	}, registry.Strategy[*storagev1.StorageClass]{
		Warn: warnOfClass,
		Default: func(s *storagev1.StorageClass) {
			registry.SetDefaultPtr(&s.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			registry.SetDefaultPtr(&s.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		},
		Validate:       validateStorageClass,
		ValidateUpdate: validateStorageClassUpdate,
	})
}

// warnOfClass warns about deprecated labels of nodes.
func warnOfClass(s, _ *storagev1.StorageClass) []string {
	var all []string
	for i, term := range s.AllowedTopologies {
		for j, expression := range term.MatchLabelExpressions {
			if text := validate.DeprecatedNodeLabel(expression.Key); text != "" {
				at := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				all = append(all, at.String()+": "+text)
			}
		}
	}
	return all
}

// storageClassName returns the column of the name, which marks the default class.
func storageClassName() table.Column {
	c := table.Name()
	c.Cell = func(obj runtime.Object, _ time.Time) any {
		class := obj.(*storagev1.StorageClass)
		if class.Annotations[IsDefaultClassAnnotation] == "true" {
			return class.Name + " (default)"
		}
		return class.Name
	}
	return c
}

func validateStorageClass(s *storagev1.StorageClass) field.ErrorList {
	return slices.Concat(
		validateProvisioner(s.Provisioner, field.NewPath("provisioner")),
		validateParameters(s.Parameters, field.NewPath("parameters")),
		validateReclaimPolicy(ptr.Deref(s.ReclaimPolicy, ""), field.NewPath("reclaimPolicy")),
		validateTopologies(s.AllowedTopologies, field.NewPath("allowedTopologies")),
		validate.OneOfPtr(s.VolumeBindingMode, field.NewPath("volumeBindingMode"),
			storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer),
	)
}

func validateReclaimPolicy(policy corev1.PersistentVolumeReclaimPolicy, path *field.Path) field.ErrorList {
	if policy == "" {
		return nil
	}
	return validate.OneOf(policy, path, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
}

// validateTopologies checks the places that the volumes of a class may have.
func validateTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, term := range terms {
		expressions := path.Index(i).Child("matchLabelExpressions")
		errs = append(errs, validate.DistinctNames(term.MatchLabelExpressions, expressions, func(r corev1.TopologySelectorLabelRequirement) string { return r.Key }, "key")...)
		errs = append(errs, validate.Each(term.MatchLabelExpressions, expressions, validateTopologyRequirement)...)
		// A term without expressions, which matches every place, counts as a duplicate.
		if text := placesText(term); seen[text] || len(term.MatchLabelExpressions) == 0 {
			errs = append(errs, field.Duplicate(expressions, ""))
		} else {
			seen[text] = true
		}
	}
	return errs
}

// placesText returns a text for the places of a term, which is the same in whatever order it names them.
func placesText(term corev1.TopologySelectorTerm) string {
	values := make(map[string][]string, len(term.MatchLabelExpressions))
	for _, r := range term.MatchLabelExpressions {
		values[r.Key] = slices.Compact(slices.Sorted(slices.Values(r.Values)))
	}
	return fmt.Sprintf("%q", values) // fmt sorts the keys
}

func validateTopologyRequirement(r *corev1.TopologySelectorLabelRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Values) == 0 {
		errs = append(errs, field.Required(at.Child("values"), ""))
	}
	seen := map[string]bool{}
	for i, value := range r.Values {
		if seen[value] {
			errs = append(errs, field.Duplicate(at.Child("values").Index(i), value))
		}
		seen[value] = true
	}
	return append(errs, metav1validation.ValidateLabelName(r.Key, at.Child("key"))...)
}

func validateProvisioner(provisioner string, path *field.Path) field.ErrorList {
	if provisioner == "" {
		return validate.Required(provisioner, path)
	}
	name := strings.ToLower(provisioner)
	return validate.FromMessages(name, path, validation.IsQualifiedName(name))
}

// validateStorageClassUpdate checks that a class keeps describing the volumes that were created from it.
func validateStorageClassUpdate(s, old *storagev1.StorageClass) field.ErrorList {
	return slices.Concat(
		validate.ImmutableUnnamed(s.Parameters, old.Parameters, field.NewPath("parameters")),
		validate.ImmutableUnnamed(s.Provisioner, old.Provisioner, field.NewPath("provisioner")),
		validate.ImmutableUnnamed(s.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy")),
		validate.ImmutableUnnamed(s.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode")))
}
