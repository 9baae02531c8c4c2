package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/admission"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	resourcehelper "k8s.io/component-helpers/resource"

	podrules "github.com/coppice-dev/coppice/internal/controller/pods"
)

// limitsPrefix is the prefix of the names in quotas of resource limits.
const limitsPrefix = "limits."

// pods returns the evaluator of pods: their number, requests and limits.
func pods(list List) quotav1.Evaluator {
	return newEvaluator(list, rules[*corev1.Pod]{
		resource: corev1.Resource("pods"), limits: limitsPods, usage: podUsage, handles: handlesPod, matches: podInScope, constraints: podConstraints,
	})
}

// podCount is the name in quotas of the number of existing pods. ResourcePods is the number of
// unfinished pods.
func podCount() corev1.ResourceName {
	return generic.ObjectCountQuotaResourceNameFor(corev1.Resource("pods"))
}

// computeResources are the resources whose requests and limits a quota may limit.
func computeResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
}

// limitsPods reports whether a resource name in a quota limits pods.
func limitsPods(name corev1.ResourceName) bool {
	if name == podCount() || name == corev1.ResourcePods || isHugePages(name) || slices.Contains(computeResources(), name) {
		return true
	}
	if requested, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix); ok {
		requested := corev1.ResourceName(requested)
		return slices.Contains(computeResources(), requested) || isHugePages(requested) || isDevice(requested)
	}
	limited, ok := strings.CutPrefix(string(name), limitsPrefix)
	return ok && slices.Contains(computeResources(), corev1.ResourceName(limited))
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isDevice reports whether a resource is an extended one, or the devices of a class.
func isDevice(name corev1.ResourceName) bool {
	return isExtended(name) || strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
}

// podUsage returns the usage of a pod. A pod that has finished uses no resources.
func podUsage(pod *corev1.Pod) corev1.ResourceList {
	usage := corev1.ResourceList{podCount(): number(1)}
	if podrules.IsFinished(pod) {
		return usage
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	addComputeUsage(usage, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))
	usage[corev1.ResourcePods] = number(1)
	return usage
}

// addComputeUsage adds requests and limits under their names in quotas.
func addComputeUsage(usage, requested, limited corev1.ResourceList) {
	for name, quantity := range requested {
		switch {
		case slices.Contains(computeResources(), name) || isHugePages(name):
			usage[name], usage[requests(name)] = quantity, quantity
		case isDevice(name):
			usage[requests(name)] = quantity
		}
	}
	for name, quantity := range limited {
		if slices.Contains(computeResources(), name) {
			usage[limitsPrefix+name] = quantity
		}
	}
}

// handlesPod reports whether a request may change the usage of pods: it creates or resizes a pod, or
// moves it between the scopes Terminating and NotTerminating.
func handlesPod(operation admission.Operation, subresource string, pod, old *corev1.Pod) bool {
	switch subresource {
	case "":
		return operation == admission.Create || isTerminating(pod) != isTerminating(old)
	case "resize":
		return operation == admission.Update
	}
	return false
}

// podConstraints returns an error that names the containers without a value for CPU or memory that a
// quota limits. Kubernetes requires these two; other resources count as zero if left out.
func podConstraints(required []corev1.ResourceName, pod *corev1.Pod) error {
	if resourcehelper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	var missing []string
	for _, name := range slices.Sorted(slices.Values(required)) {
		if !isRequired(name) {
			continue
		}
		var containers []string
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			specified := corev1.ResourceList{}
			addComputeUsage(specified, c.Resources.Requests, c.Resources.Limits)
			if _, ok := specified[name]; !ok {
				containers = append(containers, c.Name)
			}
		}
		if len(containers) > 0 {
			slices.Sort(containers)
			missing = append(missing, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(containers), ",")))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("must specify %s", strings.Join(missing, "; "))
	}
	return nil
}

// isRequired reports whether every container must specify a resource that a quota limits.
func isRequired(name corev1.ResourceName) bool {
	base := strings.TrimPrefix(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix), limitsPrefix)
	return base == string(corev1.ResourceCPU) || base == string(corev1.ResourceMemory)
}
