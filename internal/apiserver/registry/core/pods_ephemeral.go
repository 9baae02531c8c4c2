package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
)

// ephemeralContainersEndpoint returns /ephemeralcontainers, which adds containers to a running pod, to debug it. As in
// upstream, managedFields also name the fields of the status that a client has sent.
func ephemeralContainersEndpoint(r *registry.REST) rest.Storage {
	return registry.SpecSubresource(r, copyEphemeralContainers, validateEphemeralContainersUpdate)
}

// copyEphemeralContainers copies the ephemeral containers. They are part of the desired state.
func copyEphemeralContainers(to, from *corev1.Pod) {
	if !equality.Semantic.DeepEqual(to.Spec.EphemeralContainers, from.Spec.EphemeralContainers) {
		to.Spec.EphemeralContainers = from.Spec.EphemeralContainers
		to.Generation++
	}
}

// validateEphemeralContainersUpdate checks that containers were only added. A patch may change
// their order, so each is looked up by its name.
func validateEphemeralContainersUpdate(pod, old *corev1.Pod) field.ErrorList {
	if podspec.IsStatic(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	path := field.NewPath("spec", "ephemeralContainers")
	errs := podspec.ValidateEphemeralContainers(&pod.Spec, path)
	now := map[string]*corev1.EphemeralContainer{}
	for i := range pod.Spec.EphemeralContainers {
		now[pod.Spec.EphemeralContainers[i].Name] = &pod.Spec.EphemeralContainers[i]
	}
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		switch is := now[was.Name]; {
		case is == nil:
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
		case !equality.Semantic.DeepEqual(was, is):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n", was.Name)))
		}
	}
	return errs
}
