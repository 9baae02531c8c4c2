package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

func TestPodThatIsNotBoundOrHasEndedHasNoGrace(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	bound := corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: seconds(45)}
	tests := []struct {
		name      string
		spec      corev1.PodSpec
		phase     corev1.PodPhase
		requested *int64
		want      int64
	}{
		{"as the pod says", bound, corev1.PodRunning, nil, 45},
		{"as the request says", bound, corev1.PodRunning, seconds(5), 5},
		{"at once, by request", bound, corev1.PodRunning, seconds(0), 0},
		{"not bound", corev1.PodSpec{TerminationGracePeriodSeconds: seconds(45)}, corev1.PodPending, nil, 0},
		{"not bound, whatever the request says", corev1.PodSpec{}, corev1.PodPending, seconds(5), 0},
		{"has succeeded", bound, corev1.PodSucceeded, seconds(5), 0},
		{"has failed", bound, corev1.PodFailed, nil, 0},
		{"says nothing", corev1.PodSpec{NodeName: "n1"}, corev1.PodRunning, nil, 0},
		{"negative", corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: seconds(-5)}, corev1.PodRunning, nil, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, graceful := builtin.PodGrace(&corev1.Pod{Spec: test.spec, Status: corev1.PodStatus{Phase: test.phase}}, test.requested)
			if got != test.want || !graceful {
				t.Errorf("PodGrace() = %d, %t; want %d", got, graceful, test.want)
			}
		})
	}
}
