package registry

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func storageKinds() []Kind { return []Kind{storageClasses()} }

// defaultClassAnnotation marks the class of claims that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

func storageClasses() Kind {
	return define[storagev1.StorageClass, storagev1.StorageClassList](Kind{
		GroupVersion:        storagev1.SchemeGroupVersion,
		Kind:                "StorageClass",
		Resource:            "storageclasses",
		Why:                 "Named by claims, and a cluster-scoped object that installers own and delete.",
		ShortNames:          []string{"sc"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []column{
		storageClassName(),
		text("Provisioner", "Who makes the volumes.", func(s *storagev1.StorageClass) string { return s.Provisioner }),
		text("ReclaimPolicy", "What becomes of a volume when its claim is deleted.", func(s *storagev1.StorageClass) string {
			return string(deref(s.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
		}),
		text("VolumeBindingMode", "When a claim is bound.", func(s *storagev1.StorageClass) string {
			return string(deref(s.VolumeBindingMode, storagev1.VolumeBindingImmediate))
		}),
		text("AllowVolumeExpansion", "Whether volumes can grow.", func(s *storagev1.StorageClass) string {
			if deref(s.AllowVolumeExpansion, false) {
				return "true"
			}
			return "false"
		}),
		ageColumn(),
	}, behaviour[*storagev1.StorageClass]{
		defaults: func(s *storagev1.StorageClass) {
			setDefaultPtr(&s.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			setDefaultPtr(&s.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		},
		validate:       validateStorageClass,
		validateUpdate: validateStorageClassUpdate,
	})
}

// storageClassName says which class is the default one, where it is looked for.
func storageClassName() column {
	c := nameColumn()
	c.cell = func(obj runtime.Object, _ time.Time) any {
		m := metaOf(obj)
		if m.GetAnnotations()[defaultClassAnnotation] == "true" {
			return m.GetName() + " (default)"
		}
		return m.GetName()
	}
	return c
}

func validateStorageClass(s *storagev1.StorageClass) field.ErrorList {
	return slices.Concat(
		validateProvisioner(s.Provisioner, field.NewPath("provisioner")),
		oneOfPtr(s.ReclaimPolicy, field.NewPath("reclaimPolicy"),
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain),
		oneOfPtr(s.VolumeBindingMode, field.NewPath("volumeBindingMode"),
			storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer),
	)
}

func validateProvisioner(provisioner string, path *field.Path) field.ErrorList {
	if provisioner == "" {
		return required(provisioner, path)
	}
	return wellFormed(provisioner, path, validation.IsQualifiedName(provisioner))
}

// validateStorageClassUpdate: volumes that were made of a class stay what they were made as.
func validateStorageClassUpdate(s, old *storagev1.StorageClass) field.ErrorList {
	var errs field.ErrorList
	if len(immutable(s.Parameters, old.Parameters, nil)) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	if s.Provisioner != old.Provisioner {
		errs = append(errs, field.Forbidden(field.NewPath("provisioner"), "updates to provisioner are forbidden."))
	}
	if deref(s.ReclaimPolicy, "") != deref(old.ReclaimPolicy, "") {
		errs = append(errs, field.Forbidden(field.NewPath("reclaimPolicy"), "updates to reclaimPolicy are forbidden."))
	}
	return append(errs, immutable(s.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}
