package pods_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

func TestRuleComesBeforeTheContainersPolicyBeforeThePods(t *testing.T) {
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	rule := func(operator corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes},
		}}
	}
	in, notIn := rule(corev1.ContainerRestartRuleOnExitCodesOpIn, 3, 42), rule(corev1.ContainerRestartRuleOnExitCodesOpNotIn, 3, 42)
	ownNever, ownAlways := new(corev1.ContainerRestartPolicyNever), new(corev1.ContainerRestartPolicyAlways)
	for _, test := range []struct {
		policy   corev1.RestartPolicy
		own      *corev1.ContainerRestartPolicy
		rules    []corev1.ContainerRestartRule
		exitCode int32
		want     bool
	}{
		{always, nil, nil, 0, true},
		{onFailure, nil, nil, 0, false},
		{onFailure, nil, nil, 1, true},
		{never, nil, nil, 1, false},
		{"", nil, nil, 0, true},
		{always, ownNever, nil, 1, false},
		{never, ownAlways, nil, 0, true},
		{always, ownNever, in, 42, true},
		{always, ownNever, in, 1, false},
		{always, ownNever, notIn, 42, false},
		{always, ownNever, notIn, 1, true},
		{always, ownNever, []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}, 1, false},
	} {
		c := &corev1.Container{RestartPolicy: test.own, RestartPolicyRules: test.rules}
		if got := pods.MayRestart(c, test.policy, test.exitCode); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}
