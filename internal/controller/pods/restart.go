package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// MayRestart reports whether a container may run again after it has ended with an exit code. A rule of the container
// for its exit code counts first, then the container's own policy, then the given policy, which is that of its pod.
func MayRestart(c *corev1.Container, policy corev1.RestartPolicy, exitCode int32) bool {
	if isRestartedByRule(c, exitCode) {
		return true
	}
	if c.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exitCode != 0
	case corev1.RestartPolicyAlways:
	}
	return true
}

// isRestartedByRule reports whether a rule of the container restarts it. Each rule has exit codes, and each action
// restarts at least this container.
func isRestartedByRule(c *corev1.Container, exitCode int32) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		return r.ExitCodes != nil && slices.Contains(r.ExitCodes.Values, exitCode) == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
	})
}
