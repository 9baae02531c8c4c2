package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// TestNoSandbox checks that every container's status has the reason why there is no sandbox, and that its creation is
// retried.
func TestNoSandbox(t *testing.T) {
	for reason, err := range map[string]error{
		"CreatePodSandboxError":      errors.New("no network"),
		"CreateContainerConfigError": lifecycle.StartError{Reason: "CreateContainerConfigError", Err: errors.New("no network")},
	} {
		w := newNode(t, corev1.PodSpec{Containers: containers("a", "b")})
		w.setup = err
		w.want(w.settle(), "sandbox")
		for _, c := range w.pod.Status.ContainerStatuses {
			if got := c.State.Waiting; got == nil || got.Reason != reason || got.Message != "no network" {
				t.Errorf("%s waits for %+v, want %s", c.Name, got, reason)
			}
		}
		w.setup = nil
		w.want(w.passes(10*time.Second), "sandbox, start a, start b")
		w.wantPhase(corev1.PodRunning)
	}
}

// TestFilesOfAPodGoWithIt checks that a pod's files are kept while the pod exists, and are removed with it.
func TestFilesOfAPodGoWithIt(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.exits("a", 1)
	w.observed.Sandbox.Ready = false
	w.want(w.settle(), "remove, sandbox, start a")
	if w.final {
		t.Error("a sandbox that is replaced was the last one")
	}
	w.delete(30)
	w.want(w.settle(), "TERM a, remove, delete")
	if !w.final {
		t.Error("the sandbox of a pod that goes was not the last one")
	}
}

// TestFailedProbeAttemptChangesNoHealth checks that a probe that could not be carried out does not change the container's health.
func TestFailedProbeAttemptChangesNoHealth(t *testing.T) {
	probed := containers("a")
	probed[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 5, FailureThreshold: 3}
	probed[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 5, FailureThreshold: 1}
	w := newNode(t, corev1.PodSpec{Containers: probed})
	w.want(w.settle(), "sandbox, start a")
	w.mute = true
	w.want(w.passes(time.Hour), "")
	if got := w.condition(corev1.PodReady); got != "True" {
		t.Errorf("Ready: %s", got)
	}
	w.mute, w.unwell[lifecycle.Liveness] = false, true
	w.want(w.passes(15*time.Second), "TERM a, start a")
}

// debugger returns an ephemeral container.
func debugger(name string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i"}}
}

// TestEphemeralContainers checks that an ephemeral container starts once, when it is added. It does not affect the
// state of the pod, and ends with it.
func TestEphemeralContainers(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: containers("a")})
	w.want(w.settle(), "sandbox, start a")
	w.pod.Spec.EphemeralContainers = append(w.pod.Spec.EphemeralContainers, debugger("d"))
	w.want(w.settle(), "start d")
	s := w.pod.Status.EphemeralContainerStatuses
	if len(s) != 1 || s[0].Name != "d" || s[0].State.Running == nil || s[0].Ready || len(w.pod.Status.ContainerStatuses) != 1 {
		t.Errorf("ephemeral containers %+v", s)
	}
	if got := w.condition(corev1.PodReady); got != "True" {
		t.Errorf("ready: %s", got)
	}
	w.exits("d", 3)
	w.want(w.passes(time.Hour), "")
	w.wantPhase(corev1.PodRunning)
	if end := w.pod.Status.EphemeralContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 3 {
		t.Errorf("it ended with %+v", end)
	}
	w.pod.Spec.EphemeralContainers = append(w.pod.Spec.EphemeralContainers, debugger("e"))
	w.want(w.settle(), "start e")
	w.exits("a", 0)
	w.want(w.settle(), "TERM e, stop")
	w.wantPhase(corev1.PodSucceeded)
}

// TestEphemeralContainerBesideAnInitContainer checks that an init container that hangs can be debugged.
func TestEphemeralContainerBesideAnInitContainer(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: containers("i"), Containers: containers("a")})
	w.want(w.settle(), "sandbox, start i")
	w.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("d")}
	w.want(w.settle(), "start d")
	w.wantPhase(corev1.PodPending)
	w.exits("i", 0)
	w.want(w.settle(), "start a")
}

// TestRunningContainerIsResized checks that a running container is resized when its pod requests other amounts, and that its status
// reports them.
func TestRunningContainerIsResized(t *testing.T) {
	amounts := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	w := newNode(t, corev1.PodSpec{Containers: containers("a", "b")})
	w.pod.Spec.Containers[0].Resources = amounts("1")
	w.want(w.settle(), "sandbox, start a, start b")
	w.pod.Spec.Containers[0].Resources = amounts("1000m")
	w.want(w.settle(), "")
	w.pod.Spec.Containers[0].Resources = amounts("2")
	w.want(w.settle(), "resize a")
	for i, want := range []string{"2", "0"} {
		s := w.pod.Status.ContainerStatuses[i]
		if s.Resources == nil || s.Resources.Requests.Cpu().String() != want || s.AllocatedResources.Cpu().String() != want {
			t.Errorf("container %s has %v, of which %v is allocated; want %s", s.Name, s.Resources, s.AllocatedResources, want)
		}
	}
}

// TestRetriesAreSteadyUnlessTheyCostOthers checks that a container or sandbox that lacks something is retried every ten
// seconds, however long it takes, and that requests to a registry become less frequent.
func TestRetriesAreSteadyUnlessTheyCostOthers(t *testing.T) {
	noMap := lifecycle.StartError{Reason: "CreateContainerConfigError", Err: errors.New("no such ConfigMap")}
	for _, test := range []struct {
		name, step     string
		setup, startup error
		want           int // tries in an hour
	}{
		{"a ConfigMap", "start a", nil, noMap, 361},
		{"a volume", "sandbox", noMap, nil, 361},
		{"a network", "sandbox", errors.New("no network"), nil, 361},
		{"an image", "start a", nil, lifecycle.StartError{Reason: "ErrImagePull", Err: errors.New("no such image")}, 16},
	} {
		w := newNode(t, corev1.PodSpec{Containers: containers("a")})
		w.setup, w.startup = test.setup, test.startup
		if got := strings.Count(w.passes(time.Hour), test.step); got != test.want {
			t.Errorf("%s: %d tries in an hour, want %d", test.name, got, test.want)
		}
	}
}
