package lifecycle_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// states returns the states of the containers of a pod, init containers first.
func (w *fakeNode) states() string {
	var all []string
	for _, statuses := range [][]corev1.ContainerStatus{w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses} {
		for _, s := range statuses {
			switch {
			case s.State.Running != nil:
				all = append(all, s.Name+" runs")
			case s.State.Waiting != nil:
				all = append(all, s.Name+" "+s.State.Waiting.Reason)
			case s.State.Terminated != nil:
				all = append(all, fmt.Sprintf("%s %d", s.Name, s.State.Terminated.ExitCode))
			}
		}
	}
	return strings.Join(all, ", ")
}

// TestContainerThatNeverRanKeepsWaiting checks that a container that never ran has no exit code when its pod is
// deleted, unless the pod had been initialized: a Job's rule for exit code 137 is about containers that were killed.
func TestContainerThatNeverRanKeepsWaiting(t *testing.T) {
	fails := errors.New("no such image")
	for _, test := range []struct {
		name   string
		inits  []corev1.Container
		fails  error // of starts, from the beginning
		before func(w *fakeNode)
		want   string
	}{
		{"while the first init container runs", containers("i", "j"), nil, nil, "i 7, j PodInitializing, a PodInitializing, b PodInitializing"},
		{
			"while the last init container runs", containers("i", "j"), nil,
			func(w *fakeNode) { w.exits("i", 0) }, "i 0, j 7, a PodInitializing, b PodInitializing",
		},
		{"before an init container has started", containers("i", "j"), fails, nil, "i 137, j PodInitializing, a PodInitializing, b PodInitializing"},
		{
			"when initialized", containers("i"), nil,
			func(w *fakeNode) { w.startup = fails; w.exits("i", 0) }, "i 0, a 137, b 137",
		},
		{"beside a sidecar that has not started", []corev1.Container{aSidecar("s"), containers("i")[0]}, nil, nil, "s 7, i 7, a PodInitializing, b PodInitializing"},
		{"without init containers", nil, fails, nil, "a 137, b 137"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, InitContainers: test.inits, Containers: containers("a", "b")})
			w.startup = test.fails
			w.settle()
			if test.before != nil {
				test.before(w)
				w.settle()
			}
			w.exit = 7
			w.delete(30)
			w.settle()
			w.gone = false
			w.settle() // the reported status leads to the same result
			if got := w.states(); got != test.want {
				t.Errorf("the containers: %s, want %s", got, test.want)
			}
			w.wantPhase(corev1.PodFailed)
		})
	}
}

// TestContainersWaitForPodToInitialize checks that all containers of a pod with init containers wait for the same
// reason until these have completed.
func TestContainersWaitForPodToInitialize(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: containers("i", "j"), Containers: containers("a")})
	w.plan = lifecycle.Decide(lifecycle.Input{Pod: w.pod, Now: w.now}, w.state)
	w.pod.Status = w.plan.Status
	if got, want := w.states(), "i PodInitializing, j PodInitializing, a PodInitializing"; got != want {
		t.Errorf("the containers: %s, want %s", got, want)
	}
}

// TestConditionsHaveTheGenerationThatWasObserved checks that the node sets the observed generation in its own
// conditions, and in PodScheduled.
func TestConditionsHaveTheGenerationThatWasObserved(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.pod.Generation = 3
	w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: "theirs", Status: corev1.ConditionTrue}}
	w.settle()
	for _, c := range w.pod.Status.Conditions {
		if own := c.Type != "theirs"; own != (c.ObservedGeneration == 3) {
			t.Errorf("condition %s was observed at generation %d", c.Type, c.ObservedGeneration)
		}
	}
	if got := w.pod.Status.ObservedGeneration; got != 3 {
		t.Errorf("the status was observed at generation %d", got)
	}
}

// TestTerminationMessagesAreBounded checks that the messages of all containers of a pod have at most 12 KiB together.
func TestTerminationMessagesAreBounded(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: containers("a", "b", "c", "d")})
	w.settle()
	w.exits("a", 1)
	w.observed.Instances[0].Message = strings.Repeat("é", 2000)
	w.settle()
	if got := w.pod.Status.ContainerStatuses[0].State.Terminated.Message; len(got) != 3072 {
		t.Errorf("the message has %d bytes", len(got))
	}
}

// TestRejectedPodFails checks that a pod that the node rejects fails with the reason, and that nothing is started for
// it.
func TestRejectedPodFails(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: containers("i"), Containers: containers("a")})
	w.pod.Generation = 2
	w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: "theirs", Status: corev1.ConditionTrue}}
	w.rejection = &lifecycle.Rejection{Reason: "OutOfcpu", Message: "too small", At: w.now.Add(time.Second)}
	w.want(w.settle(), "")
	w.wantPhase(corev1.PodPending) // its time has not come
	w.want(w.passes(time.Second), "")
	s := w.pod.Status
	if s.Phase != corev1.PodFailed || s.Reason != "OutOfcpu" || s.Message != "Pod was rejected: too small" || s.ObservedGeneration != 2 || s.StartTime == nil {
		t.Errorf("the status is %+v", s)
	}
	if len(s.ContainerStatuses)+len(s.InitContainerStatuses) != 0 || w.condition(corev1.PodScheduled) != "none" || w.condition("theirs") != "True" {
		t.Errorf("the status tells of containers, or has conditions of a pod that was run: %+v", s)
	}
	w.rejection = nil // another agent
	w.want(w.passes(time.Hour), "")
	if !equality.Semantic.DeepEqual(s, w.pod.Status) {
		t.Errorf("the status becomes %+v", w.pod.Status)
	}
	w.delete(0)
	w.want(w.settle(), "delete")
}

// TestRejectedPodThatIsDeleted checks that a pod that is being deleted ends as if it had not been rejected.
func TestRejectedPodThatIsDeleted(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.rejection = &lifecycle.Rejection{Reason: "OutOfcpu", At: w.now.Add(time.Hour)}
	w.settle()
	w.delete(30)
	w.want(w.settle(), "delete")
}

// TestOrderOfStatuses checks that the statuses of regular and ephemeral containers are ordered by name, and the
// statuses of init containers by their start.
func TestOrderOfStatuses(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: []corev1.Container{aSidecar("z"), aSidecar("y")}, Containers: containers("c", "b", "d", "a")})
	w.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("f"), debugger("e")}
	w.want(w.settle(), "sandbox, start f, start e, start z, start y, start c, start b, start d, start a")
	var names []string
	for _, statuses := range [][]corev1.ContainerStatus{w.pod.Status.InitContainerStatuses, w.pod.Status.ContainerStatuses, w.pod.Status.EphemeralContainerStatuses} {
		for _, s := range statuses {
			names = append(names, s.Name)
		}
	}
	if got, want := strings.Join(names, " "), "z y a b c d e f"; got != want {
		t.Errorf("the statuses: %s, want %s", got, want)
	}
}

// TestMountsAndUserInStatus checks that the status of a container has its volume mounts from the beginning, and its
// user as soon as the runtime has reported it.
func TestMountsAndUserInStatus(t *testing.T) {
	c := containers("a")
	c[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "token", MountPath: "/token", ReadOnly: true, SubPath: "x"}}
	w := newNode(t, corev1.PodSpec{Containers: c})
	w.startup = errors.New("no such image")
	w.settle()
	want := []corev1.VolumeMountStatus{
		{Name: "data", MountPath: "/data"}, {Name: "token", MountPath: "/token", ReadOnly: true, RecursiveReadOnly: new(corev1.RecursiveReadOnlyDisabled)},
	}
	s := w.pod.Status.ContainerStatuses[0]
	if diff := cmp.Diff(want, s.VolumeMounts); diff != "" || s.User != nil {
		t.Errorf("before the container runs (-want +got), user %v:\n%s", s.User, diff)
	}
	w.startup = nil
	w.passes(time.Minute)
	user := corev1.LinuxContainerUser{UID: 7, GID: 8, SupplementalGroups: []int64{9}}
	w.observed.Instances[0].User = &user
	w.settle()
	s = w.pod.Status.ContainerStatuses[0]
	if diff := cmp.Diff(want, s.VolumeMounts) + cmp.Diff(&corev1.ContainerUser{Linux: &user}, s.User); diff != "" {
		t.Errorf("while the container runs (-want +got):\n%s", diff)
	}
}

// TestSandboxCondition checks that PodReadyToStartContainers is true as soon as the sandbox has its network, and until
// then says what is missing.
func TestSandboxCondition(t *testing.T) {
	for _, test := range []struct {
		name string
		lifecycle.Sandbox
		want corev1.PodCondition
	}{
		{"none", lifecycle.Sandbox{}, corev1.PodCondition{Status: "False", Reason: "PodSandboxNotReady", Message: "no pod sandbox exists"}},
		{"dead", lifecycle.Sandbox{ID: "s"}, corev1.PodCondition{Status: "False", Reason: "PodSandboxNotReady", Message: "pod sandbox is not ready"}},
		{"without an address", lifecycle.Sandbox{ID: "s", NoAddress: true}, corev1.PodCondition{Status: "False", Reason: "PodSandboxNotReady", Message: "pod sandbox has no IP address"}},
		{"ready", lifecycle.Sandbox{ID: "s", Ready: true, IPs: []string{"10.1.0.1"}}, corev1.PodCondition{Status: "True"}},
	} {
		w := newNode(t, corev1.PodSpec{Containers: containers("a")})
		plan := lifecycle.Decide(lifecycle.Input{Pod: w.pod, Observed: lifecycle.Observed{Sandbox: test.Sandbox}, Now: w.now}, w.state)
		got := plan.Status.Conditions[0]
		if got.Type != corev1.PodReadyToStartContainers || got.Status != test.want.Status || got.Reason != test.want.Reason || got.Message != test.want.Message {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
