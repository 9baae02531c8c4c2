package lifecycle_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

func TestMayRunAgain(t *testing.T) {
	always, onFailure, never := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	own := containers("own")[0]
	own.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
	own.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	spec := corev1.PodSpec{
		InitContainers: append(containers("init"), aSidecar("sidecar")), Containers: append(containers("main"), own),
		EphemeralContainers: []corev1.EphemeralContainer{debugger("debug")},
	}
	for _, test := range []struct {
		policy     corev1.RestartPolicy
		phase      corev1.PodPhase
		container  string
		exitCode   int32
		newSandbox bool
		want       bool
	}{
		{always, corev1.PodRunning, "main", 0, false, true},
		{always, corev1.PodRunning, "main", 1, true, true},
		{onFailure, corev1.PodRunning, "main", 0, false, false},
		{onFailure, corev1.PodRunning, "main", 0, true, false},
		{onFailure, corev1.PodRunning, "main", 1, false, true},
		{never, corev1.PodRunning, "main", 0, true, false},
		{never, corev1.PodRunning, "main", 1, false, false},
		{never, corev1.PodRunning, "main", 1, true, false},
		{always, corev1.PodPending, "init", 0, false, false},
		{always, corev1.PodPending, "init", 0, true, true}, // it may have set up the network of the old sandbox
		{always, corev1.PodPending, "init", 1, false, true},
		{onFailure, corev1.PodPending, "init", 0, true, false},
		{onFailure, corev1.PodPending, "init", 1, false, true},
		{never, corev1.PodPending, "init", 0, true, false},
		{never, corev1.PodPending, "init", 1, true, false},
		{never, corev1.PodRunning, "sidecar", 0, false, true},
		{always, corev1.PodRunning, "own", 0, false, false},
		{always, corev1.PodRunning, "own", 42, true, true},
		{never, corev1.PodRunning, "own", 42, false, true},
		{always, corev1.PodRunning, "debug", 1, true, false},
		{always, corev1.PodRunning, "unknown", 1, true, false},
		{always, corev1.PodFailed, "main", 1, false, false},
		{always, corev1.PodSucceeded, "sidecar", 0, true, false},
		{never, corev1.PodFailed, "own", 42, false, false},
	} {
		pod := &corev1.Pod{Spec: *spec.DeepCopy(), Status: corev1.PodStatus{Phase: test.phase}}
		pod.Spec.RestartPolicy = test.policy
		if got := lifecycle.MayRunAgain(pod, test.container, test.exitCode, test.newSandbox); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

// loses makes the runtime lose all instances of a container.
func (w *fakeNode) loses(container string) {
	var kept []lifecycle.Instance
	for _, o := range w.observed.Instances {
		if o.Container != container {
			kept = append(kept, o)
		}
	}
	w.observed.Instances = kept
}

// TestLostInitContainerStaysEnded checks that an init container that has completed and that the runtime has lost stays
// completed: it does not run beside the container after it, nor after a restart of the agent.
func TestLostInitContainerStaysEnded(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		w := newNode(t, corev1.PodSpec{RestartPolicy: policy, InitContainers: containers("i", "j"), Containers: containers("a")})
		w.settle()
		w.exits("i", 0)
		w.want(w.settle(), "start j")
		before := w.pod.Status.InitContainerStatuses[0]
		w.loses("i")
		w.want(w.passes(time.Minute), "")
		w.state = &lifecycle.State{}
		w.want(w.passes(time.Minute), "")
		if got := w.states(); got != "i 0, j runs, a PodInitializing" {
			t.Errorf("%s: the containers: %s", policy, got)
		}
		if got := w.pod.Status.InitContainerStatuses[0]; *got.State.Terminated != *before.State.Terminated || got.RestartCount != 0 || !got.Ready {
			t.Errorf("%s: the lost container is reported as %+v", policy, got)
		}
		w.exits("j", 0)
		w.want(w.settle(), "start a")
	}
}

// TestInitContainersInANewSandbox checks that only the init containers of a pod that is always restarted run again in a
// new sandbox. A pod that ends with its sandbox needs no new one; the dead one is stopped, once, to free its address.
func TestInitContainersInANewSandbox(t *testing.T) {
	for policy, want := range map[corev1.RestartPolicy]string{
		corev1.RestartPolicyAlways:    "KILL a, remove, sandbox, start i",
		corev1.RestartPolicyOnFailure: "KILL a, remove, sandbox, start a",
		corev1.RestartPolicyNever:     "KILL a, stop",
	} {
		w := newNode(t, corev1.PodSpec{RestartPolicy: policy, InitContainers: containers("i"), Containers: containers("a")})
		w.settle()
		w.exits("i", 0)
		w.settle()
		w.now = w.now.Add(time.Minute)
		w.observed.Sandbox.Ready = false
		w.want(w.settle(), want)
		w.want(w.passes(time.Hour), "")
	}
}

// TestLostContainerThatMayRunOnce checks that a container that may run once does not run again if the runtime loses it
// while it runs, and that its pod ends.
func TestLostContainerThatMayRunOnce(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: containers("a", "b")})
	w.settle()
	w.loses("a")
	w.want(w.passes(time.Minute), "")
	if got := w.states(); got != "a 137, b runs" {
		t.Errorf("the containers: %s", got)
	}
	if end := w.pod.Status.ContainerStatuses[0].State.Terminated; end.Reason != "ContainerStatusUnknown" || !end.FinishedAt.IsZero() {
		t.Errorf("the lost container ended with %+v", end)
	}
	w.state = &lifecycle.State{}
	w.exits("b", 0)
	w.want(w.passes(time.Minute), "stop")
	w.wantPhase(corev1.PodFailed)

	w = newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("d")}
	w.settle()
	w.exits("d", 0)
	w.settle()
	w.loses("d")
	w.want(w.passes(time.Minute), "")
}

// TestEndIsReportedBeforeTheSandboxIsReplaced checks that a dead sandbox is removed only after its containers' ends,
// which only it shows, are in the API.
func TestEndIsReportedBeforeTheSandboxIsReplaced(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: containers("a", "b")})
	w.settle()
	w.exits("a", 0)
	w.observed.Sandbox.Ready = false // at once: the end of a has not been reported
	w.want(w.settle(), "KILL b, remove, sandbox, start b")
	if got := w.states(); got != "a 0, b runs" {
		t.Errorf("the containers: %s", got)
	}
}

// TestRestartCountNeverDecreases: the runtime has lost the last instance of a container, and still has an older one.
func TestRestartCountNeverDecreases(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.exits("a", 1)
	w.settle()
	w.observed.Instances = w.observed.Instances[:1]
	w.want(w.settle(), "start a")
	if got := w.pod.Status.ContainerStatuses[0].RestartCount; got != 2 {
		t.Errorf("it counts %d restarts", got)
	}
}

// TestFinishedPodNeverRuns checks that no container of a finished pod is reported as running, even if a killed agent
// had begun to start it.
func TestFinishedPodNeverRuns(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: containers("a")})
	w.settle()
	w.exits("a", 3)
	w.settle()
	w.wantPhase(corev1.PodFailed)
	before := w.pod.Status.DeepCopy()
	w.deaf = true
	w.observed.Instances = append(w.observed.Instances, lifecycle.Instance{ID: "a-1", Container: "a", Attempt: 1, Started: w.now})
	w.want(w.settle(), "TERM a")
	if got := w.states(); got != "a 3" {
		t.Errorf("while it runs, the containers: %s", got)
	}
	w.exits("a", 0)
	w.settle()
	if got := w.pod.Status.ContainerStatuses[0]; got.ContainerID != "a-0" || *got.State.Terminated != *before.ContainerStatuses[0].State.Terminated {
		t.Errorf("it is reported as %+v", got)
	}
	w.delete(30)
	w.want(w.settle(), "remove, delete")
}

// TestAnotherImageReplacesTheInstance checks that an instance whose container's spec names another image ends like any
// other, with its hook and its grace period, and that the next one follows at once, whatever the restart policy is.
func TestAnotherImageReplacesTheInstance(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		regular := containers("a", "b")
		regular[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
		w := newNode(t, corev1.PodSpec{RestartPolicy: policy, InitContainers: append(containers("i"), aSidecar("s")), Containers: regular})
		w.settle()
		w.exits("i", 0)
		w.settle()
		w.events, w.deaf = nil, true
		for _, c := range []*corev1.Container{&w.pod.Spec.Containers[0], &w.pod.Spec.InitContainers[0], &w.pod.Spec.InitContainers[1]} {
			c.Image = "other"
		}
		w.want(w.settle(), "TERM s, preStop a, TERM a")
		if got := w.pod.Status.ContainerStatuses[0].Image; got != "i" {
			t.Errorf("%s: the old container runs, and is reported with image %s", policy, got)
		}
		w.exits("s", 0)
		w.want(w.settle(), "start s")
		w.slow = true
		w.want(w.passes(31*time.Second), "KILL a, start a")
		if got := w.pod.Status.ContainerStatuses[0]; got.State.Waiting == nil || got.LastTerminationState.Terminated == nil {
			t.Errorf("%s: before the next one starts, it is reported as %+v", policy, got)
		}
		w.slow = false
		w.do(lifecycle.Start{Container: "a", Image: "other", Attempt: 1})
		w.want(w.passes(time.Hour), "start a")
		w.wantPhase(corev1.PodRunning)
		if got := w.states(); got != "i 0, s runs, a runs, b runs" {
			t.Errorf("%s: the containers: %s", policy, got)
		}
		if a, b := w.pod.Status.ContainerStatuses[0], w.pod.Status.ContainerStatuses[1]; a.Image != "other" || a.RestartCount != 1 || b.RestartCount != 0 {
			t.Errorf("%s: %+v, %+v", policy, a, b)
		}
		if got, want := text(w.events), "s Normal Killing: Init container s definition changed; a Normal Killing: Container a definition changed, will be restarted"; got != want {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
	}
}

// TestAnotherImageEndsBackoffs checks that neither the failures of an instance nor a pull, nor its failures, delay another
// image.
func TestAnotherImageEndsBackoffs(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	for range 4 {
		w.passes(5 * time.Minute)
		w.exits("a", 1)
	}
	w.want(w.settle(), "")
	w.pod.Spec.Containers[0].Image = "other"
	w.want(w.settle(), "start a")

	w = newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.startup = lifecycle.StartError{Reason: "ErrImagePull", Err: errors.New("no")}
	w.passes(10 * time.Minute)
	w.want(w.settle(), "")
	w.startup, w.pod.Spec.Containers[0].Image = nil, "other"
	w.want(w.settle(), "start a")

	w = newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.slow = true
	w.want(w.settle(), "sandbox, start a")
	w.pod.Spec.Containers[0].Image = "other"
	w.want(w.settle(), "give up a")
	w.want(w.settle(), "")
	w.state.Finished(lifecycle.Start{Container: "a", Image: "i"}, lifecycle.ErrCanceled, w.now)
	w.want(w.settle(), "start a")
}
