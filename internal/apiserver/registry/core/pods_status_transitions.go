package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
	podrules "github.com/coppice-dev/coppice/internal/controller/pods"
)

// validateTransitions checks that a container which has terminated, and which its node must not restart, stays
// terminated.
func validateTransitions(s, was *corev1.PodStatus, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	restarts := func(containers []corev1.Container) func(name string, exitCode int32) bool {
		named := byName(containers)
		return func(name string, exitCode int32) bool {
			return named[name] != nil && podrules.MayRestart(named[name], spec.RestartPolicy, exitCode)
		}
	}
	never := func(string, int32) bool { return false }
	errs := staysTerminated(s.EphemeralContainerStatuses, was.EphemeralContainerStatuses, never, path.Child("ephemeralContainerStatuses"))
	if mayRestartAll(spec.InitContainers) || mayRestartAll(spec.Containers) {
		return errs
	}
	return slices.Concat(
		staysTerminated(s.ContainerStatuses, was.ContainerStatuses, restarts(spec.Containers), path.Child("containerStatuses")),
		staysTerminated(s.InitContainerStatuses, was.InitContainerStatuses, restarts(spec.InitContainers), path.Child("initContainerStatuses")),
		errs,
	)
}

// staysTerminated compares the states of containers by name. The errors have the indexes of the old statuses, as
// kube-apiserver's have.
func staysTerminated(statuses, old []corev1.ContainerStatus, mayRestart func(name string, exitCode int32) bool, path *field.Path) field.ErrorList {
	running := map[string]bool{}
	for i := range statuses {
		if statuses[i].State.Terminated == nil {
			running[statuses[i].Name] = true
		}
	}
	return validate.Each(old, path, func(was *corev1.ContainerStatus, at *field.Path) field.ErrorList {
		if was.State.Terminated == nil {
			return nil
		}
		if !running[was.Name] || mayRestart(was.Name, was.State.Terminated.ExitCode) {
			return nil
		}
		return field.ErrorList{field.Forbidden(at.Child("state"), "may not be transitioned to non-terminated state")}
	})
}

// byName returns the first container of each name.
func byName(containers []corev1.Container) map[string]*corev1.Container {
	named := make(map[string]*corev1.Container, len(containers))
	for i := range containers {
		if named[containers[i].Name] == nil {
			named[containers[i].Name] = &containers[i]
		}
	}
	return named
}

// mayRestartAll reports whether a rule of a container restarts all containers of the pod.
func mayRestartAll(containers []corev1.Container) bool {
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}
