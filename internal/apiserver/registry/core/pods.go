package core

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
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
	}, podColumns(), registry.Strategy[*corev1.Pod]{
		Default:                defaultPod,
		BeginCreate:            resolveClasses,
		PrepareForCreate:       createPod,
		PrepareForUpdate:       updatePod,
		Validate:               podspec.ValidatePod,
		ValidateCreate:         validateNewPod,
		Warn:                   podspec.WarnOfPod,
		WarnOfStatus:           warnOfPodStatus,
		ValidateUpdate:         validatePodUpdate,
		ValidateStatusUpdate:   validatePodStatus,
		PrepareForStatusUpdate: completeStatus,
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
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"))
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "ephemeralContainers"), "cannot be set on create"))
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
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

// qosClassOf returns the class by which a node evicts pods when it runs out of resources. Guaranteed: every container
// has limits for CPU and memory that equal its requests. BestEffort: no container has any. Burstable: all others.
// Resources of the pod as a whole replace the resources of its containers.
func qosClassOf(spec *corev1.PodSpec) corev1.PodQOSClass {
	var specified []corev1.ResourceRequirements
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		specified = append(specified, c.Resources)
	}
	if resourcehelper.IsPodLevelResourcesSet(&corev1.Pod{Spec: *spec}) {
		specified = []corev1.ResourceRequirements{*spec.Resources}
	}
	guaranteed, bestEffort := true, true
	for _, r := range specified {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
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
