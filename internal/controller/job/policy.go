package job

import (
	"fmt"
	"math"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// failureAction returns the action of the pod failure policy for a failed pod and, if a rule
// matches, the reason. For a pod that is still terminating the action is Count: only pods
// whose containers have ended can match a rule.
func failureAction(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) (batchv1.PodFailurePolicyAction, string) {
	if policy == nil || pod.Status.Phase != corev1.PodFailed {
		return batchv1.PodFailurePolicyActionCount, ""
	}
	for i, rule := range policy.Rules {
		why := ""
		if rule.OnExitCodes != nil {
			why = exitCodeMatch(rule.OnExitCodes, pod)
		} else {
			why = conditionMatch(rule.OnPodConditions, pod)
		}
		if why != "" {
			return rule.Action, fmt.Sprintf("%s matching %s rule at index %d", why, rule.Action, i)
		}
	}
	return batchv1.PodFailurePolicyActionCount, ""
}

func isIgnored(job *batchv1.Job, pod *corev1.Pod) bool {
	action, _ := failureAction(job.Spec.PodFailurePolicy, pod)
	return action == batchv1.PodFailurePolicyActionIgnore
}

func exitCodeMatch(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.Pod) string {
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		ended := s.State.Terminated
		if ended == nil || ended.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != s.Name {
			continue
		}
		if listed := slices.Contains(rule.Values, ended.ExitCode); listed == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", s.Name, pod.Namespace, pod.Name, ended.ExitCode)
		}
	}
	return ""
}

func conditionMatch(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, pod *corev1.Pod) string {
	for _, pattern := range patterns {
		status := pattern.Status
		if status == "" {
			status = corev1.ConditionTrue
		}
		if c := pods.Condition(pod, pattern.Type); c != nil && c.Status == status {
			return fmt.Sprintf("Pod %s/%s has condition %s", pod.Namespace, pod.Name, pattern.Type)
		}
	}
	return ""
}

// successMatch returns the index of the first rule that the completed indexes satisfy, or -1. A
// rule whose indexes cannot be parsed is never satisfied.
func successMatch(policy *batchv1.SuccessPolicy, completed indexSet) int {
	if policy == nil {
		return -1
	}
	return slices.IndexFunc(policy.Rules, func(rule batchv1.SuccessPolicyRule) bool {
		have, needed := completed.Len(), math.MaxInt
		if rule.SucceededIndexes != nil {
			asked, err := parseIndexes(*rule.SucceededIndexes, math.MaxInt)
			if err != nil {
				return false
			}
			have, needed = asked.Common(completed), asked.Len()
		}
		if rule.SucceededCount != nil {
			needed = int(*rule.SucceededCount)
		}
		return have >= needed
	})
}
