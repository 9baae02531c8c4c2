package lifecycle_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

func text(events []lifecycle.Event) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s %s: %s", e.Container, e.Type, e.Reason, e.Message))
	}
	return strings.Join(all, "; ")
}

// TestEventsOfSteps checks that the Events of steps that have ended are the same as a kubelet's.
func TestEventsOfSteps(t *testing.T) {
	failed := errors.New("no")
	start := lifecycle.Start{Container: "c"}
	for name, test := range map[string]struct {
		step lifecycle.Step
		err  error
		want string
	}{
		"a container runs":         {start, nil, "c Normal Created: Container created; c Normal Started: Container started"},
		"no image":                 {start, lifecycle.StartError{Reason: "ErrImagePull", Err: errors.New(`failed to pull image "i": no`)}, `c Warning Failed: Failed to pull image "i": no; c Warning Failed: Error: ErrImagePull`},
		"no image, and no pulling": {start, lifecycle.StartError{Reason: "ErrImageNeverPull", Err: errors.New("container image")}, "c Warning ErrImageNeverPull: Container image"},
		"no such name":             {start, lifecycle.StartError{Reason: "InvalidImageName", Err: errors.New("failed to apply")}, "c Warning InspectFailed: Failed to apply"},
		"no configuration":         {start, lifecycle.StartError{Reason: "CreateContainerConfigError", Err: failed}, "c Warning Failed: Error: no"},
		"no process":               {start, lifecycle.StartError{Reason: "RunContainerError", Err: failed}, "c Normal Created: Container created; c Warning Failed: Error: no"},
		"a secret that leaks":      {start, lifecycle.StartError{Reason: lifecycle.PostStartHookError, Err: failed}, "c Normal Created: Container created; c Normal Started: Container started; c Warning FailedPostStartHook: PostStartHook failed; c Normal Killing: FailedPostStartHook"},
		"no network":               {lifecycle.CreateSandbox{}, failed, " Warning FailedCreatePodSandBox: Failed to create pod sandbox: no"},
		"no volumes":               {lifecycle.CreateSandbox{}, lifecycle.StartError{Err: failed}, " Warning FailedMount: Unable to attach or mount volumes: no"},
		"a sandbox":                {lifecycle.CreateSandbox{}, nil, ""},
		"unhealthy":                {lifecycle.Probe{Container: "c", Kind: lifecycle.Liveness}, failed, "c Warning Unhealthy: Liveness probe failed: no"},
		"healthy":                  {lifecycle.Probe{Container: "c"}, nil, ""},
		"undecided":                {lifecycle.Probe{Container: "c"}, lifecycle.UndecidedError{}, ""},
		"errored":                  {lifecycle.Probe{Container: "c", Kind: lifecycle.Readiness}, lifecycle.UndecidedError{Err: errors.New("no such command")}, "c Warning Unhealthy: Readiness probe errored and resulted in unknown state: no such command"},
		"errored, wrapped":         {lifecycle.Probe{Container: "c", Kind: lifecycle.Readiness}, fmt.Errorf("probe c: %w", lifecycle.UndecidedError{Err: failed}), "c Warning Unhealthy: Readiness probe errored and resulted in unknown state: no"},
		"a start that is given up": {start, lifecycle.StartError{Reason: "ErrImagePull", Err: fmt.Errorf("%w: no", lifecycle.ErrCanceled)}, ""},
		"an agent that stops":      {lifecycle.Probe{Container: "c", Kind: lifecycle.Liveness}, lifecycle.ErrCanceled, ""},
		"a hook that fails":        {lifecycle.PreStop{Container: "c"}, failed, "c Warning FailedPreStopHook: PreStopHook failed"},
	} {
		if got := text(lifecycle.EventsOf(test.step, test.err)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestKillingIsTold checks that the end of a container has one Event, whatever steps it takes, with the reason.
func TestKillingIsTold(t *testing.T) {
	hooked := containers("a")
	hooked[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
	w := newNode(t, corev1.PodSpec{Containers: hooked})
	w.settle()
	w.deaf = true
	w.delete(30)
	w.passes(time.Hour)
	if got, want := text(w.events), "a Normal Killing: Stopping container a"; got != want {
		t.Errorf("a pod that is deleted: %s, want %s", got, want)
	}

	probed := containers("a")
	probed[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1}
	w = newNode(t, corev1.PodSpec{Containers: probed})
	w.settle()
	w.unwell[lifecycle.Liveness] = true
	w.passes(2 * time.Second)
	if got, want := text(w.events), "a Normal Killing: Container a failed liveness probe, will be restarted"; !strings.HasPrefix(got, want) {
		t.Errorf("an unhealthy container: %s, want %s", got, want)
	}

	w = newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: probed})
	w.settle()
	w.unwell[lifecycle.Liveness] = true
	w.passes(2 * time.Second)
	if got, want := text(w.events), "a Normal Killing: Container a failed liveness probe"; got != want {
		t.Errorf("an unhealthy container that never restarts: %s, want %s", got, want)
	}
}

// TestChangeOfSandboxIsTold checks that the replacement of a sandbox has an Event, and the removal of the last one has
// none.
func TestChangeOfSandboxIsTold(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.exits("a", 1)
	w.observed.Sandbox.Ready = false
	w.settle()
	w.exits("a", 1)
	w.delete(30)
	w.want(w.settle(), "remove, delete")
	if got, want := text(w.events), " Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created."; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestEventsBetweenStatuses checks the Events of a back-off that begins, and of an expired deadline.
func TestEventsBetweenStatuses(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a"), ActiveDeadlineSeconds: new(int64(60))})
	w.settle()
	for range 2 {
		w.exits("a", 1)
		w.settle()
	}
	running := w.pod.DeepCopy()
	running.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if got, want := text(lifecycle.EventsBetween(running, &w.pod.Status)), "a Warning BackOff: Back-off restarting failed container a in pod web_default(u1)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := text(lifecycle.EventsBetween(w.pod, &w.pod.Status)); got != "" {
		t.Errorf("without a change: %s", got)
	}
	before := w.pod.DeepCopy()
	w.passes(2 * time.Minute)
	if got, want := text(lifecycle.EventsBetween(before, &w.pod.Status)), " Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	w = newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.startup = lifecycle.StartError{Reason: "ErrImagePull", Err: errors.New("no")}
	w.settle()
	before = w.pod.DeepCopy()
	w.passes(30 * time.Second)
	if got, want := text(lifecycle.EventsBetween(before, &w.pod.Status)), `a Normal BackOff: Back-off pulling image "i"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
