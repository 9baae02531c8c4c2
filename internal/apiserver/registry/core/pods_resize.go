package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
)

// resizeEndpoint returns /resize, which changes the CPU and the memory of a running pod and of its containers. As in
// upstream, managedFields also name the fields of the status that a client has sent.
func resizeEndpoint(r *registry.REST) rest.Storage {
	return registry.SpecSubresource(r, copyResources, validateResize)
}

// copyResources copies the resources of the pod and of its containers, which are part of the desired state. If
// containers were added or removed it copies the whole spec, and if they were renamed or reordered it copies all of
// them. Validation then refuses the update, with all errors.
func copyResources(to, from *corev1.Pod) {
	was := to.Spec.DeepCopy()
	if len(was.Containers) != len(from.Spec.Containers) || len(was.InitContainers) != len(from.Spec.InitContainers) {
		to.Spec, to.Status.QOSClass = from.Spec, from.Status.QOSClass
	} else {
		to.Spec.Containers = withResources(to.Spec.Containers, from.Spec.Containers)
		to.Spec.InitContainers = withResources(to.Spec.InitContainers, from.Spec.InitContainers)
		to.Spec.Resources = from.Spec.Resources
	}
	if to.Spec.Resources == nil { // clients that do not know the field leave it out
		to.Spec.Resources = was.Resources
	}
	if to.Spec.Resources != nil {
		podspec.CompletePodResources(to)
	}
	if !equality.Semantic.DeepEqual(was, &to.Spec) {
		to.Generation++
	}
}

func withResources(to, from []corev1.Container) []corev1.Container {
	if !slices.EqualFunc(to, from, func(a, b corev1.Container) bool { return a.Name == b.Name }) {
		return from
	}
	for i := range to {
		to[i].Resources, to[i].ResizePolicy = from[i].Resources, from[i].ResizePolicy
	}
	return to
}

// validateResize checks that only CPU and memory have changed, in amount.
func validateResize(pod, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	switch {
	case podspec.IsStatic(old):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows:
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	errs := podspec.ValidatePod(pod)
	class := old.Status.QOSClass
	if class == "" {
		class = qosClassOf(&old.Spec)
	}
	if qosClassOf(&pod.Spec) != class {
		errs = append(errs, field.Invalid(spec, pod.Status.QOSClass, "Pod QOS Class may not change as a result of resizing"))
	}
	if !canResize(old) {
		errs = append(errs, field.Forbidden(spec, "Pod running on node without support for resize"))
	}
	errs = append(errs, validateResizedPod(pod.Spec.Resources, old.Spec.Resources, spec)...)
	others := append(
		validateSameContainers(pod.Spec.Containers, old.Spec.Containers, "containers", spec.Child("containers")),
		validateSameContainers(pod.Spec.InitContainers, old.Spec.InitContainers, "initContainers", spec.Child("initContainers"))...)
	if len(others) > 0 {
		return append(errs, others...)
	}
	for i := range old.Spec.InitContainers {
		errs = append(errs, validateResizedInitContainer(&pod.Spec.InitContainers[i], &old.Spec.InitContainers[i], spec.Child("initContainers").Index(i))...)
	}
	for i := range old.Spec.Containers {
		at := spec.Child("containers").Index(i)
		errs = append(errs, validateResizedContainer(&pod.Spec.Containers[i], &old.Spec.Containers[i], at, spec, onlyCPUAndMemory)...)
	}
	if now, before := pod.Spec.Resources, old.Spec.Resources; len(errs) == 0 && isEmpty(now) && isEmpty(before) && !equality.Semantic.DeepEqual(now, before) {
		errs = append(errs, field.Forbidden(spec, onlyCPUAndMemory)) // claims have changed
	}
	return errs
}

const onlyCPUAndMemory = "only cpu and memory resources are mutable"

// validateResizedPod checks that the resources of the pod as a whole lose no entry, and that only CPU and memory
// change.
func validateResizedPod(is, was *corev1.ResourceRequirements, spec *field.Path) field.ErrorList {
	at := spec.Child("resources")
	switch {
	case isEmpty(is) && isEmpty(was):
		return nil
	case is == nil:
		return field.ErrorList{field.Forbidden(at, "pod-level resources cannot be removed")}
	}
	var errs field.ErrorList
	before := ptr.Deref(was, corev1.ResourceRequirements{})
	if anyRemoved(is.Requests, before.Requests) {
		errs = append(errs, field.Forbidden(at.Child("requests"), "pod-level resource requests cannot be removed"))
	}
	if anyRemoved(is.Limits, before.Limits) {
		errs = append(errs, field.Forbidden(at.Child("limits"), "pod-level resource limits cannot be removed"))
	}
	undone := is.DeepCopy()
	undone.Requests, undone.Limits = undoAmounts(undone.Requests, before.Requests), undoAmounts(undone.Limits, before.Limits)
	if !equality.Semantic.DeepEqual(*undone, before) {
		errs = append(errs, field.Forbidden(spec, onlyCPUAndMemory+" at pod-level"))
	}
	return errs
}

func isEmpty(r *corev1.ResourceRequirements) bool {
	return r == nil || len(r.Requests)+len(r.Limits) == 0
}

// validateResizedInitContainer checks an init container. A sidecar can be resized; any other init container cannot be
// restarted for new resources.
func validateResizedInitContainer(is, was *corev1.Container, at *field.Path) field.ErrorList {
	errs := validateResizedContainer(is, was, at, at, "only cpu and memory resources for init or sidecar containers are mutable")
	if ptr.Deref(is.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways || equality.Semantic.DeepEqual(is, was) {
		return errs
	}
	for _, policy := range is.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer {
			errs = append(errs, field.Forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"))
		}
	}
	return errs
}

// canResize reports whether the node of a pod supports resizing: such a node reports the resources of running
// containers.
func canResize(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running != nil {
			return s.Resources != nil
		}
	}
	return true // no node has reported yet
}

func validateSameContainers(is, was []corev1.Container, what string, path *field.Path) field.ErrorList {
	if len(is) != len(was) {
		return field.ErrorList{field.Forbidden(path, what+" may not be added or removed on resize")}
	}
	var errs field.ErrorList
	for i := range was {
		if is[i].Name != was[i].Name {
			errs = append(errs, field.Forbidden(path.Index(i).Child("name"), what+" may not be renamed or reordered on resize"))
		}
	}
	return errs
}

// validateResizedContainer checks that no amount was removed, and that only CPU and memory differ. Other differences
// are reported at others, with words.
func validateResizedContainer(is, was *corev1.Container, at, others *field.Path, words string) field.ErrorList {
	var errs field.ErrorList
	if anyRemoved(is.Resources.Requests, was.Resources.Requests) {
		errs = append(errs, field.Forbidden(at.Child("resources", "requests"), "resource requests cannot be removed"))
	}
	if anyRemoved(is.Resources.Limits, was.Resources.Limits) {
		errs = append(errs, field.Forbidden(at.Child("resources", "limits"), "resource limits cannot be removed"))
	}
	undone := is.DeepCopy()
	undone.Resources.Requests = undoAmounts(undone.Resources.Requests, was.Resources.Requests)
	undone.Resources.Limits = undoAmounts(undone.Resources.Limits, was.Resources.Limits)
	if !equality.Semantic.DeepEqual(undone, was) {
		errs = append(errs, field.Forbidden(others, words))
	}
	return errs
}

func anyRemoved(is, was corev1.ResourceList) bool {
	for name := range was {
		if _, ok := is[name]; !ok {
			return true
		}
	}
	return false
}

// undoAmounts returns a list with the CPU and the memory of the old one.
func undoAmounts(is, was corev1.ResourceList) corev1.ResourceList {
	undone := is.DeepCopy()
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(undone, name)
		if amount, ok := was[name]; ok {
			if undone == nil {
				undone = corev1.ResourceList{}
			}
			undone[name] = amount
		}
	}
	return undone
}
