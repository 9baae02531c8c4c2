package cri

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// TestFailedPostStartEndsTheContainer checks that a container whose postStart hook fails ends like any other: preStop,
// then TERM with its grace period.
func TestFailedPostStartEndsTheContainer(t *testing.T) {
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}
	for _, test := range []struct {
		grace, want int64
		commands    int
		preStop     *corev1.LifecycleHandler
	}{
		{30, 30, 1, nil},
		{30, 30, 2, hook},
		{0, 2, 1, nil}, // it can still handle TERM
	} {
		f, pod := newFake(), aPod()
		f.exec = utilexec.CodeExitError{Err: errors.New("no"), Code: 1}
		pod.Spec.TerminationGracePeriodSeconds = &test.grace
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook, PreStop: test.preStop}
		r := f.open(t, t.TempDir())
		mustDo(t, r, pod, lifecycle.CreateSandbox{})
		err := do(t, r, pod, lifecycle.Start{Container: pod.Spec.Containers[0].Name})
		if known, ok := errors.AsType[lifecycle.StartError](err); !ok || known.Reason != lifecycle.PostStartHookError {
			t.Errorf("the start: %v", err)
		}
		if f.commands != test.commands || !slices.Equal(f.stops, []int64{test.want}) {
			t.Errorf("grace %d: %d hooks ran, want %d; stopped with timeouts %v, want %d", test.grace, f.commands, test.commands, f.stops, test.want)
		}
		if got := r.Observe(pod.UID); len(got.Instances) != 1 || got.Instances[0].Alive() {
			t.Errorf("%+v", got)
		}
	}
}
