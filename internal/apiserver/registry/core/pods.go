package core

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
	"github.com/coppice-dev/coppice/internal/deletion"
)

func pods() registry.Resource {
	return registry.Define[corev1.Pod, corev1.PodList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Pod",
		Plural:              "pods",
		Namespaced:          true,
		ShortNames:          []string{"po"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
		Deletion:            deletion.StrategyOf(corev1.Resource("pods")),
	}, podColumns(), registry.Strategy[*corev1.Pod]{
		Default:              podspec.DefaultPod,
		BeginCreate:          resolveClasses,
		PrepareForCreate:     createPod,
		PrepareForUpdate:     updatePod,
		Validate:             func(p *corev1.Pod) field.ErrorList { return podspec.ValidateSpec(&p.Spec, field.NewPath("spec")) },
		ValidateCreate:       validateNewPod,
		ValidateUpdate:       validatePodUpdate,
		ValidateStatusUpdate: validatePodStatus,
		// The class is derived from the spec, so a status update may leave it out.
		PrepareForStatusUpdate: func(p, old *corev1.Pod) { registry.SetDefault(&p.Status.QOSClass, old.Status.QOSClass) },
		Desired:                func(p *corev1.Pod) any { return p.Spec },
		CopyStatus:             registry.CopyField(func(p *corev1.Pod) *corev1.PodStatus { return &p.Status }),
		SelectableFields:       podFields,
		IndexedFields:          []string{"spec.nodeName"},
		Subresources: func(r *registry.REST) map[string]rest.Storage {
			return map[string]rest.Storage{
				"binding":             &bindingREST{store: r.Store, now: r.Now},
				"ephemeralcontainers": ephemeralContainersEndpoint(r),
				"resize":              resizeEndpoint(r),
			}
		},
	})
}

func validateNewPod(p *corev1.Pod) field.ErrorList {
	if isStatic(p) && len(p.Spec.ResourceClaims) > 0 {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support resource claims")}
	}
	if len(p.Spec.EphemeralContainers) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "ephemeralContainers"), "cannot be set on create")}
}

func podFields(p *corev1.Pod) fields.Set {
	return fields.Set{
		"spec.nodeName":            p.Spec.NodeName,
		"spec.restartPolicy":       string(p.Spec.RestartPolicy),
		"spec.schedulerName":       p.Spec.SchedulerName,
		"spec.serviceAccountName":  p.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase":             string(p.Status.Phase),
		"status.podIP":             p.Status.PodIP,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

// validatePodStatus checks the phase, and that what is final is not changed.
func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	if p.Status.Phase != "" {
		errs = validate.OneOf(p.Status.Phase, path.Child("phase"),
			corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown)
	}
	if p.Status.NominatedNodeName != "" {
		errs = append(errs, validate.OptionalSubdomain(p.Status.NominatedNodeName, path.Child("nominatedNodeName"))...)
	}
	if old.Status.QOSClass != "" && p.Status.QOSClass != old.Status.QOSClass {
		errs = append(errs, field.Invalid(path.Child("qosClass"), p.Status.QOSClass, apivalidation.FieldImmutableErrorMsg))
	}
	return append(errs, podspec.ValidateResourceClaimStatuses(p.Status.ResourceClaimStatuses, &p.Spec, path.Child("resourceClaimStatuses"))...)
}

// qosClassOf returns the class by which a node evicts pods when it runs out of resources.
// Guaranteed: every container is limited to what it requests, in CPU and memory.
// BestEffort: no container specifies anything. Burstable: all others.
func qosClassOf(spec *corev1.PodSpec) corev1.PodQOSClass {
	guaranteed, bestEffort := true, true
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				bestEffort = false
			}
			if limit.IsZero() || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case bestEffort:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
