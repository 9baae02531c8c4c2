package podspec

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
)

// The resources of a pod as a whole.

// CompletePodResources sets the missing resources of the pod as a whole, if it has any: the limits of huge pages to the
// sum of the containers' limits, requests to the sum of the containers' requests, otherwise to the pod's limits, and
// limits that every container has to the sum of these, but no less than the request.
func CompletePodResources(pod *corev1.Pod) {
	if pod.Spec.Resources == nil || len(pod.Spec.Resources.Limits)+len(pod.Spec.Resources.Requests) == 0 {
		return
	}
	r := pod.Spec.Resources.DeepCopy()
	pod.Spec.Resources = r
	containersLimits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for name, limit := range containersLimits {
		if _, requested := r.Requests[name]; isHugePages(name) && !requested {
			r.Limits = withAmount(r.Limits, name, limit)
		}
	}
	for name, request := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
			r.Requests = withAmount(r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			r.Requests = withAmount(r.Requests, name, limit)
		}
	}
	limited := limitedEverywhere(&pod.Spec)
	for name, request := range r.Requests {
		if !resourcehelper.IsSupportedPodLevelResource(name) || !limited[name] {
			continue
		}
		if limit := containersLimits[name]; request.Cmp(limit) > 0 {
			r.Limits = withAmount(r.Limits, name, request)
		} else {
			r.Limits = withAmount(r.Limits, name, limit)
		}
	}
}

// limitedEverywhere returns the resources for which every container has a limit. Ephemeral containers have none.
func limitedEverywhere(spec *corev1.PodSpec) map[corev1.ResourceName]bool {
	if len(spec.EphemeralContainers) > 0 {
		return nil
	}
	containers := map[corev1.ResourceName]int{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Limits {
				containers[name]++
			}
		}
	}
	everywhere := map[corev1.ResourceName]bool{}
	for name, n := range containers {
		everywhere[name] = n == len(spec.InitContainers)+len(spec.Containers)
	}
	return everywhere
}

// withAmount adds an amount of a resource to a list. An existing amount stays.
func withAmount(list corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) corev1.ResourceList {
	if _, given := list[name]; given {
		return list
	}
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[name] = amount.DeepCopy()
	return list
}

// validatePodResources checks the resources of a pod as a whole.
func validatePodResources(spec *corev1.PodSpec, claims claimNames, at *field.Path) field.ErrorList {
	r := spec.Resources
	if r == nil {
		return nil
	}
	if isWindows(spec) {
		return field.ErrorList{field.Forbidden(at, "may not be set for a windows pod")}
	}
	errs := append(validateResources(r, validatePodResource, claims, at), validateTogether(spec, at)...)
	if r.Claims != nil {
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	return errs
}

// validateTogether checks that the sum of the containers' requests is within the pod's requests, and that each
// container's limit is within the pod's limit; for huge pages, the sum of the limits.
func validateTogether(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	pod := &corev1.Pod{Spec: *spec}
	var errs field.ErrorList
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		total, whole := requests[name], spec.Resources.Requests[name]
		if _, given := spec.Resources.Requests[name]; given && total.Cmp(whole) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), whole.String(), "must be greater than or equal to aggregate container requests of "+total.String()))
		}
	}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		total, whole := limits[name], spec.Resources.Limits[name]
		if _, given := spec.Resources.Limits[name]; given && isHugePages(name) && total.Cmp(whole) > 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), whole.String(), "must be greater than or equal to aggregate container limits of "+total.String()))
		}
	}
	for i, c := range spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			limit, whole := c.Resources.Limits[name], spec.Resources.Limits[name]
			if _, given := spec.Resources.Limits[name]; given && limit.Cmp(whole) > 0 {
				path := at.Child("containers").Index(i).Key(string(name)).Child("limits")
				errs = append(errs, field.Invalid(path, limit.String(), "must be less than or equal to pod limits of "+whole.String()))
			}
		}
	}
	return errs
}
