package lifecycle_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/agent/lifecycle"
)

// Every container's status says why there is no sandbox, and its creation is retried.
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

// A pod's files are kept while it exists, and are removed with it.
func TestFinal(t *testing.T) {
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

// A probe that could not be carried out says nothing about the container.
func TestUndecided(t *testing.T) {
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
