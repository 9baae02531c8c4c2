package storage

import (
	"slices"
	"strconv"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func csiDrivers() registry.Resource {
	return registry.Define[storagev1.CSIDriver, storagev1.CSIDriverList](registry.Resource{
		GroupVersion:        storagev1.SchemeGroupVersion,
		Kind:                "CSIDriver",
		Plural:              "csidrivers",
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		ReturnDeletedObject: true,
	}, []table.Column{
		yesOrNo("AttachRequired", "Whether volumes are attached before they are mounted.", func(d *storagev1.CSIDriver) *bool { return d.Spec.AttachRequired }),
		yesOrNo("PodInfoOnMount", "Whether the driver is told about the pod.", func(d *storagev1.CSIDriver) *bool { return d.Spec.PodInfoOnMount }),
		yesOrNo("StorageCapacity", "Whether pods are scheduled by free capacity.", func(d *storagev1.CSIDriver) *bool { return d.Spec.StorageCapacity }),
		table.Text("TokenRequests", "Audiences of the tokens that the driver gets.", func(d *storagev1.CSIDriver) string {
			if d.Spec.TokenRequests == nil {
				return "<unset>"
			}
			return table.Join(d.Spec.TokenRequests, func(t storagev1.TokenRequest) string { return t.Audience })
		}),
		yesOrNo("RequiresRepublish", "Whether volumes are published again and again.", func(d *storagev1.CSIDriver) *bool { return d.Spec.RequiresRepublish }),
		table.Text("Modes", "Kinds of volumes that the driver has.", func(d *storagev1.CSIDriver) string {
			return table.OrNone(table.Join(d.Spec.VolumeLifecycleModes, func(m storagev1.VolumeLifecycleMode) string { return string(m) }))
		}),
		table.Age(),
	}, registry.Strategy[*storagev1.CSIDriver]{
		Warn:           warnOfDriver,
		Default:        defaultDriver,
		Validate:       validateDriver,
		ValidateUpdate: validateDriverUpdate,
		// As in Kubernetes, a new driver has the generation 0.
		PrepareForUpdate: func(d, old *storagev1.CSIDriver) {
			if !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
				d.Generation = old.Generation + 1
			}
		},
	})
}

func yesOrNo(name, description string, of func(*storagev1.CSIDriver) *bool) table.Column {
	return table.Text(name, description, func(d *storagev1.CSIDriver) string { return strconv.FormatBool(ptr.Deref(of(d), false)) })
}

func defaultDriver(d *storagev1.CSIDriver) {
	registry.SetDefaultPtr(&d.Spec.AttachRequired, true)
	registry.SetDefaultPtr(&d.Spec.PodInfoOnMount, false)
	registry.SetDefaultPtr(&d.Spec.StorageCapacity, false)
	registry.SetDefaultPtr(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	registry.SetDefaultPtr(&d.Spec.RequiresRepublish, false)
	registry.SetDefaultPtr(&d.Spec.SELinuxMount, false)
	registry.SetDefaultPtr(&d.Spec.PreventPodSchedulingIfMissing, false)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// minUpdatePeriod is the minimum time between two updates of a node's allocatable volumes, in seconds.
const minUpdatePeriod = 10

// Bounds of the lifetime of a token, in seconds.
const (
	minTokenLife = 10 * 60
	maxTokenLife = 1 << 32
)

func validateDriver(d *storagev1.CSIDriver) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.OneOfPtr(d.Spec.FSGroupPolicy, spec.Child("fsGroupPolicy"),
			storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		validateTokenRequests(d.Spec.TokenRequests, spec.Child("tokenRequests")),
	)
	for _, mode := range d.Spec.VolumeLifecycleModes {
		modes := []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
		if !slices.Contains(modes, mode) {
			errs = append(errs, field.NotSupported(spec.Child("volumeLifecycleModes"), mode, modes))
		}
	}
	if period := d.Spec.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < minUpdatePeriod {
		errs = append(errs, field.Invalid(spec.Child("nodeAllocatableUpdatePeriodSeconds"), *period, "must be greater than or equal to 10 seconds"))
	}
	if inSecrets := d.Spec.ServiceAccountTokenInSecrets; inSecrets != nil && len(d.Spec.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(spec.Child("serviceAccountTokenInSecrets"), *inSecrets,
			"serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

// validateTokenRequests checks the lifetimes of tokens, and that each token has an audience of its own.
func validateTokenRequests(requests []storagev1.TokenRequest, path *field.Path) field.ErrorList {
	seen := map[string]bool{}
	return validate.Each(requests, path, func(r *storagev1.TokenRequest, at *field.Path) field.ErrorList {
		if seen[r.Audience] {
			return field.ErrorList{field.Duplicate(at.Child("audience"), r.Audience)}
		}
		seen[r.Audience] = true
		switch seconds := ptr.Deref(r.ExpirationSeconds, minTokenLife); {
		case seconds < minTokenLife:
			return field.ErrorList{field.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")}
		case seconds > maxTokenLife:
			return field.ErrorList{field.Invalid(at.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds")}
		}
		return nil
	})
}

// validateDriverUpdate checks that the fields on which existing volumes depend do not change. The first path is
// misspelt as in Kubernetes.
func validateDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	return append(
		validate.Immutable(d.Spec.AttachRequired, old.Spec.AttachRequired, field.NewPath("spec", "attachedRequired")),
		validate.Immutable(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, field.NewPath("spec", "volumeLifecycleModes"))...)
}

// warnOfDriver warns when a driver is configured to get tokens in volume attributes, which it may log.
func warnOfDriver(d, old *storagev1.CSIDriver) []string {
	same := old != nil && equality.Semantic.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests)
	if same || len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; " +
		"if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}
