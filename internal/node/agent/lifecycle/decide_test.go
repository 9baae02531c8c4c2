package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

func TestPodStartsAndIsReady(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a", "b")})
	w.want(w.settle(), "sandbox, start a, start b")
	w.wantPhase(corev1.PodRunning)
	for _, of := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodReadyToStartContainers, corev1.PodScheduled} {
		if got := w.condition(of); got != "True" {
			t.Errorf("%s: %s", of, got)
		}
	}
	if s := w.pod.Status; s.PodIP != "10.1.0.1" || s.HostIP != "10.0.0.1" || !s.StartTime.Time.Equal(begin()) || s.ContainerStatuses[0].ContainerID != "a-0" {
		t.Errorf("status: %+v", s)
	}
	if !w.plan.Next.IsZero() {
		t.Errorf("the next decision about a pod at rest is due at %s", w.plan.Next)
	}
}

func TestInitContainersInOrder(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: append(containers("i1"), aSidecar("s"), containers("i2")[0]), Containers: containers("a")})
	w.want(w.settle(), "sandbox, start i1")
	if got := w.pod.Status.ContainerStatuses[0].State.Waiting; got == nil || got.Reason != "PodInitializing" {
		t.Errorf("the container waits for %v", got)
	}
	if got := w.condition(corev1.PodInitialized); got != "False ContainersNotInitialized" {
		t.Errorf("Initialized: %s", got)
	}
	w.exits("i1", 1)
	w.want(w.settle(), "start i1") // the first failure is retried at once
	w.exits("i1", 1)
	w.want(w.passes(9*time.Second), "")
	w.want(w.passes(time.Second), "start i1")
	w.exits("i1", 0)
	w.want(w.settle(), "start s, start i2")
	w.wantPhase(corev1.PodPending)
	w.exits("i2", 0)
	w.want(w.settle(), "start a")
	w.wantPhase(corev1.PodRunning)
	if got := w.pod.Status.InitContainerStatuses[0].RestartCount; got != 2 {
		t.Errorf("i1 was restarted %d times", got)
	}
	w.exits("s", 3)
	w.want(w.settle(), "start s") // and not the init containers after it
}

func TestInitContainerThatMayNotFail(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, InitContainers: []corev1.Container{aSidecar("s"), containers("i")[0]}, Containers: containers("a")})
	w.want(w.settle(), "sandbox, start s, start i")
	w.exits("i", 1)
	w.want(w.settle(), "TERM s, stop")
	w.wantPhase(corev1.PodFailed)
	if got := w.pod.Status.ContainerStatuses[0].State.Waiting; got == nil || got.Reason != "PodInitializing" {
		t.Errorf("the container waits for %v", got)
	}
}

func TestSidecarHoldsUntilItHasStarted(t *testing.T) {
	s := aSidecar("s")
	s.StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 100}
	w := newNode(t, corev1.PodSpec{InitContainers: []corev1.Container{s}, Containers: containers("a")})
	w.unwell[lifecycle.Startup] = true
	w.want(w.passes(20*time.Second), "sandbox, start s")
	w.unwell[lifecycle.Startup] = false
	w.want(w.passes(time.Second), "start a")
}

func TestRestartPolicies(t *testing.T) {
	for _, test := range []struct {
		policy corev1.RestartPolicy
		exits  int32
		steps  string
		phase  corev1.PodPhase
	}{
		{corev1.RestartPolicyAlways, 0, "start a", corev1.PodRunning},
		{corev1.RestartPolicyAlways, 1, "start a", corev1.PodRunning},
		{corev1.RestartPolicyOnFailure, 0, "stop", corev1.PodSucceeded},
		{corev1.RestartPolicyOnFailure, 1, "start a", corev1.PodRunning},
		{corev1.RestartPolicyNever, 0, "stop", corev1.PodSucceeded},
		{corev1.RestartPolicyNever, 1, "stop", corev1.PodFailed},
	} {
		w := newNode(t, corev1.PodSpec{RestartPolicy: test.policy, Containers: containers("a")})
		w.settle()
		w.exits("a", test.exits)
		w.want(w.settle(), test.steps)
		w.wantPhase(test.phase)
	}
}

// TestRestartRules checks that a container's own policy counts before the pod's, and its rules before both.
func TestRestartRules(t *testing.T) {
	rule := func(operator corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []corev1.ContainerRestartRule {
		return []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes},
		}}
	}
	in, notIn := corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, test := range []struct {
		name   string
		policy corev1.ContainerRestartPolicy
		rules  []corev1.ContainerRestartRule
		exits  int32
		steps  string
		phase  corev1.PodPhase
	}{
		{"the policy", corev1.ContainerRestartPolicyOnFailure, nil, 1, "start a", corev1.PodRunning},
		{"a code that is named", corev1.ContainerRestartPolicyNever, rule(in, 42, 43), 42, "start a", corev1.PodRunning},
		{"a code that is not", corev1.ContainerRestartPolicyNever, rule(in, 42, 43), 41, "stop", corev1.PodFailed},
		{"any other code", corev1.ContainerRestartPolicyNever, rule(notIn, 1), 0, "start a", corev1.PodRunning},
		{"but one", corev1.ContainerRestartPolicyNever, rule(notIn, 1), 1, "stop", corev1.PodFailed},
		{"a second rule", corev1.ContainerRestartPolicyNever, append(rule(in, 1), rule(in, 2)...), 2, "start a", corev1.PodRunning},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := containers("a")
			all[0].RestartPolicy, all[0].RestartPolicyRules = &test.policy, test.rules
			w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: all})
			w.settle()
			w.exits("a", test.exits)
			w.want(w.settle(), test.steps)
			w.wantPhase(test.phase)
		})
	}
}

// TestRestartRulesOfInitContainers checks that an init container's own policy and rules count until it has succeeded.
func TestRestartRulesOfInitContainers(t *testing.T) {
	never, init := corev1.ContainerRestartPolicyNever, containers("i")
	init[0].RestartPolicy = &never
	init[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{7}},
	}}
	for exits, want := range map[int32]string{1: "start i", 0: "start a", 7: "stop"} {
		w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, InitContainers: init, Containers: containers("a")})
		w.settle()
		w.exits("i", exits)
		w.want(w.settle(), want)
	}
}

func TestBackoffDoublesUpToFiveMinutes(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	for _, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
		w.exits("a", 1)
		if want > 0 {
			w.want(w.passes(want*time.Second-1), "")
			if got := w.pod.Status.ContainerStatuses[0]; got.State.Waiting == nil || got.State.Waiting.Reason != "CrashLoopBackOff" || got.LastTerminationState.Terminated.ExitCode != 1 {
				t.Errorf("while it waits: %+v", got)
			}
			// What it waits for survives the agent.
			w.state = &lifecycle.State{}
			w.want(w.passes(1), "start a")
		} else {
			w.want(w.settle(), "start a")
		}
	}
	w.want(w.passes(10*time.Minute), "")
	w.exits("a", 1)
	w.want(w.settle(), "start a") // it ran long enough: the back-off is reset
	if len(w.observed.Instances) != 2 {
		t.Errorf("%d instances are kept, want the last two", len(w.observed.Instances))
	}
}

func TestImagePullBackoff(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.startup = lifecycle.StartError{Reason: "ErrImagePull", Err: errors.New("no such image")}
	w.want(w.settle(), "sandbox, start a")
	if got := w.pod.Status.ContainerStatuses[0].State.Waiting; got == nil || got.Reason != "ErrImagePull" {
		t.Errorf("it waits for %v", got)
	}
	w.want(w.passes(10*time.Second), "start a")
	if got := w.pod.Status.ContainerStatuses[0].State.Waiting; got == nil || got.Reason != "ImagePullBackOff" {
		t.Errorf("it waits for %v", got)
	}
	w.startup = nil
	w.want(w.passes(20*time.Second), "start a")
	w.wantPhase(corev1.PodRunning)
}

func TestGracefulEnd(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a", "b")})
	w.settle()
	w.delete(30)
	w.want(w.settle(), "TERM a, TERM b, remove, delete")
	w.wantPhase(corev1.PodSucceeded)
}

// TestEndIsReportedBeforeItIsForgotten checks that the sandbox is removed only after the API has the ends of the
// containers, because only the sandbox shows them.
func TestEndIsReportedBeforeItIsForgotten(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a", "b")})
	w.settle()
	w.exit = 3
	w.delete(30)
	w.want(w.settle(), "TERM a, TERM b, remove, delete")
	for _, s := range w.pod.Status.ContainerStatuses {
		if end := s.State.Terminated; end == nil || end.ExitCode != 3 || end.Reason != "Error" {
			t.Errorf("container %s: %+v", s.Name, s.State)
		}
	}
}

// TestNothingIsReportedAfterTheRemoval: the API would respond that there is no such pod.
func TestNothingIsReportedAfterTheRemoval(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.delete(30)
	w.want(w.settle(), "TERM a, remove, delete")
	w.gone = false // the watch event of the removal is late
	w.pod.Status = corev1.PodStatus{}
	if w.settle(); len(w.pod.Status.ContainerStatuses) > 0 || w.pod.Status.Phase != "" {
		t.Errorf("it reports %+v", w.pod.Status)
	}
}

func TestDeafContainerIsKilledAtTheEndOfItsGrace(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.deaf = true
	w.delete(30)
	w.want(w.passes(30*time.Second-1), "TERM a")
	w.want(w.passes(1), "KILL a, remove, delete")
	w.wantPhase(corev1.PodFailed)
}

func TestGraceIsShortenedByALaterDelete(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.deaf = true
	w.delete(3600)
	w.want(w.passes(10*time.Second), "TERM a")
	w.delete(12) // 12 s from the beginning
	w.want(w.passes(2*time.Second-1), "")
	w.want(w.passes(1), "KILL a, remove, delete")
}

func TestSidecarsEndLastAndInReverse(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: []corev1.Container{aSidecar("s1"), aSidecar("s2")}, Containers: containers("a", "b")})
	w.settle()
	w.deaf = true
	w.delete(30)
	w.want(w.settle(), "TERM a, TERM b")
	w.exits("a", 0)
	w.want(w.settle(), "")
	w.exits("b", 0)
	w.want(w.settle(), "TERM s2")
	w.exits("s2", 0)
	w.want(w.passes(30*time.Second-1), "TERM s1")
	w.want(w.passes(1), "KILL s1, remove, delete")
	w.wantPhase(corev1.PodSucceeded)
}

func TestSidecarsEndWithTheGraceOfThePod(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: []corev1.Container{aSidecar("s1"), aSidecar("s2")}, Containers: containers("a")})
	w.settle()
	w.deaf = true
	w.delete(5)
	w.want(w.passes(5*time.Second), "TERM a, KILL a, TERM s2, TERM s1")
	w.want(w.passes(2*time.Second), "KILL s2, KILL s1, remove, delete")
}

// TestGraceIsAtLeastTwoSeconds checks that a container can handle TERM for two seconds, however short its grace period
// is.
func TestGraceIsAtLeastTwoSeconds(t *testing.T) {
	for _, grace := range []int64{1, 2} {
		w := newNode(t, corev1.PodSpec{Containers: containers("a")})
		w.settle()
		w.deaf = true
		w.delete(grace)
		w.want(w.passes(2*time.Second-1), "TERM a")
		w.want(w.passes(1), "KILL a, remove, delete")
	}
	w := newNode(t, corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(0)), ActiveDeadlineSeconds: new(int64(60)), Containers: containers("a")})
	w.settle()
	w.deaf = true
	w.want(w.passes(62*time.Second-1), "TERM a")
	w.want(w.passes(1), "KILL a, stop")
}

// TestPreStopOfSidecarsBeginsAtOnce checks that the preStop hook of a sidecar begins together with the others, and that
// its TERM waits for its turn.
func TestPreStopOfSidecarsBeginsAtOnce(t *testing.T) {
	hook := &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	s1, s2, a := aSidecar("s1"), aSidecar("s2"), containers("a")
	s1.Lifecycle, s2.Lifecycle, a[0].Lifecycle = hook, hook, hook
	w := newNode(t, corev1.PodSpec{InitContainers: []corev1.Container{s1, s2}, Containers: a})
	w.settle()
	w.deaf = true
	w.delete(30)
	w.want(w.settle(), "preStop a, preStop s2, preStop s1, TERM a")
	w.exits("a", 0)
	w.want(w.settle(), "TERM s2")
	w.exits("s2", 0)
	w.want(w.settle(), "TERM s1")
}

// TestSidecarsWaitForRegularContainersOnly checks that sidecars outlive the regular containers, but neither init
// containers nor ephemeral ones.
func TestSidecarsWaitForRegularContainersOnly(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: []corev1.Container{aSidecar("s"), containers("i")[0]}, Containers: containers("a")})
	w.settle()
	w.deaf = true
	w.delete(30)
	w.want(w.settle(), "TERM i, TERM s")

	w = newNode(t, corev1.PodSpec{InitContainers: []corev1.Container{aSidecar("s")}, Containers: containers("a")})
	w.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("d")}
	w.settle()
	w.deaf = true
	w.delete(30)
	w.want(w.settle(), "TERM a, TERM d")
	w.exits("a", 0)
	w.want(w.settle(), "TERM s")
}

func TestSidecarsEndWithTheirJob(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, InitContainers: []corev1.Container{aSidecar("s")}, Containers: containers("a")})
	w.settle()
	w.exits("a", 0)
	w.want(w.settle(), "TERM s, stop")
	w.wantPhase(corev1.PodSucceeded)
}

func TestPreStop(t *testing.T) {
	hooked := containers("a")
	hooked[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	w := newNode(t, corev1.PodSpec{Containers: hooked})
	w.settle()
	w.delete(30)
	w.want(w.settle(), "preStop a, TERM a, remove, delete")

	w = newNode(t, corev1.PodSpec{Containers: hooked})
	w.settle()
	w.hooks, w.deaf = false, true
	w.delete(30)
	w.want(w.passes(30*time.Second-1), "preStop a")
	w.want(w.passes(1), "TERM a") // the hook used up the grace period: TERM, and two more seconds
	w.want(w.passes(2*time.Second-1), "")
	w.want(w.passes(1), "KILL a, remove, delete")
}

func TestUnhealthyContainerIsKilledAndRestarted(t *testing.T) {
	probed := containers("a")
	probed[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 5, FailureThreshold: 3}
	w := newNode(t, corev1.PodSpec{Containers: append(probed, containers("b")...)})
	w.want(w.passes(time.Minute), "sandbox, start a, start b")
	w.unwell[lifecycle.Liveness], w.deaf = true, true
	w.want(w.passes(10*time.Second), "")
	w.want(w.passes(5*time.Second), "TERM a")
	w.unwell[lifecycle.Liveness] = false
	w.want(w.passes(30*time.Second), "KILL a, start a")
	w.want(w.passes(time.Minute), "")
	if got := w.pod.Status.ContainerStatuses[0].RestartCount; got != 1 {
		t.Errorf("%d restarts", got)
	}
}

func TestPodIsReadyOnceProbesAndGatesAre(t *testing.T) {
	probed := containers("a")
	probed[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 5, FailureThreshold: 2, InitialDelaySeconds: 10}
	w := newNode(t, corev1.PodSpec{Containers: probed, ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}})
	w.passes(9 * time.Second)
	if got := w.condition(corev1.PodReady); got != "False ContainersNotReady" {
		t.Errorf("before the first probe: %s", got)
	}
	w.passes(time.Second)
	if got := w.condition(corev1.PodReady); got != "False ReadinessGatesNotReady" {
		t.Errorf("before the gate opens: %s", got)
	}
	w.pod.Status.Conditions = append(w.pod.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
	w.settle()
	if got := w.condition(corev1.PodReady); got != "True" {
		t.Errorf("ready: %s", got)
	}
	// A restart of the agent does not make it unready, although the new agent has not probed it yet.
	w.state = &lifecycle.State{}
	w.unwell[lifecycle.Readiness] = true
	w.settle()
	if got := w.condition(corev1.PodReady); got != "True" {
		t.Errorf("after a restart of the agent: %s", got)
	}
	w.passes(5 * time.Second)
	if got := w.condition(corev1.PodReady); got != "False ContainersNotReady" {
		t.Errorf("after two failures: %s", got)
	}
	if got := w.pod.Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("%d restarts for not being ready", got)
	}
}

func TestPodFailsAtItsDeadline(t *testing.T) {
	w := newNode(t, corev1.PodSpec{ActiveDeadlineSeconds: new(int64(60)), Containers: containers("a")})
	w.want(w.passes(time.Minute-1), "sandbox, start a")
	w.deaf = true
	w.want(w.passes(1), "TERM a")
	w.wantPhase(corev1.PodRunning)
	w.want(w.passes(30*time.Second), "KILL a, stop")
	w.wantPhase(corev1.PodFailed)
	if got := w.pod.Status.Reason; got != "DeadlineExceeded" {
		t.Errorf("reason %q", got)
	}
	w.delete(0)
	w.want(w.settle(), "remove, delete")
	w.wantPhase(corev1.PodFailed)
}

// TestFinishedPodFreesItsSandbox checks that a finished pod frees its sandbox and keeps its dead containers and the
// address in its status, and that its deletion frees the rest. An agent that takes over cannot tell whether a sandbox that
// is not ready was stopped, and stops it once more.
func TestFinishedPodFreesItsSandbox(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: containers("a", "b")})
	w.settle()
	w.exits("a", 0)
	w.want(w.settle(), "") // b runs
	w.exits("b", 0)
	w.want(w.settle(), "stop")
	w.wantPhase(corev1.PodSucceeded)
	if got := w.pod.Status.PodIP; got != "10.1.0.1" {
		t.Errorf("address %q", got)
	}
	if got := w.condition(corev1.PodReadyToStartContainers); got != "False PodSandboxNotReady" {
		t.Errorf("PodReadyToStartContainers: %s", got)
	}
	if len(w.observed.Instances) != 2 {
		t.Errorf("instances %+v", w.observed.Instances)
	}
	w.want(w.passes(time.Hour), "")
	w.state = &lifecycle.State{}
	w.want(w.passes(time.Hour), "stop")
	w.delete(30)
	w.want(w.settle(), "remove, delete")
}

// TestPullIsGivenUp checks that a pod that ends gives up its pulls once, and ends when the pulls have ended.
func TestPullIsGivenUp(t *testing.T) {
	for name, ends := range map[string]func(w *fakeNode){
		"deletion": func(w *fakeNode) { w.delete(30) },
		"deadline": func(w *fakeNode) { w.now = w.now.Add(time.Minute) },
		"removal":  func(w *fakeNode) { w.gone = true },
	} {
		w := newNode(t, corev1.PodSpec{ActiveDeadlineSeconds: new(int64(60)), Containers: containers("a", "b")})
		w.slow = true
		w.want(w.settle(), "sandbox, start a, start b")
		ends(w)
		w.want(w.settle(), "give up a, give up b")
		w.want(w.passes(5*time.Second), "")
		w.startup = errors.New("canceled")
		w.state.Finished(lifecycle.Start{Container: "a", Image: "i"}, w.startup, w.now)
		w.want(w.settle(), "")
		w.state.Finished(lifecycle.Start{Container: "b", Image: "i"}, w.startup, w.now)
		want := map[string]string{"deletion": "remove, delete", "deadline": "stop", "removal": "remove"}[name]
		w.want(w.settle(), want)
	}
}

func TestFinishedBeforeTheDeadline(t *testing.T) {
	w := newNode(t, corev1.PodSpec{ActiveDeadlineSeconds: new(int64(60)), RestartPolicy: corev1.RestartPolicyNever, Containers: containers("a")})
	w.passes(59 * time.Second)
	w.exits("a", 0)
	w.now = w.now.Add(time.Minute) // no decision in between
	w.settle()
	w.wantPhase(corev1.PodSucceeded)
}

func TestDeletedBeforeItStarted(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.delete(30)
	w.want(w.settle(), "delete")
	w.wantPhase(corev1.PodFailed)
	if got := w.pod.Status.ContainerStatuses[0].State.Terminated; got == nil || got.Reason != "ContainerStatusUnknown" {
		t.Errorf("the container: %v", got)
	}
}

func TestForgottenByTheAPI(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.gone = true
	w.want(w.settle(), "KILL a, remove")
}

func TestSandboxThatDied(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.observed.Sandbox.Ready = false
	w.want(w.settle(), "KILL a, remove, sandbox, start a")
	if got := w.pod.Status.ContainerStatuses[0]; got.RestartCount != 1 {
		t.Errorf("it counts %d restarts", got.RestartCount)
	}
}

// TestCompletedContainerDoesNotRunAgain checks that a container that has completed does not run again in the new
// sandbox of its pod.
func TestCompletedContainerDoesNotRunAgain(t *testing.T) {
	w := newNode(t, corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: containers("a", "b", "c")})
	w.settle()
	w.exits("a", 0)
	w.settle()
	w.observed.Sandbox.Ready = false
	w.want(w.settle(), "KILL b, KILL c, remove, sandbox, start b, start c")
	w.want(w.passes(time.Hour), "")
	if got := w.states(); got != "a 0, b runs, c runs" {
		t.Errorf("the containers: %s", got)
	}
	w.exits("b", 0)
	w.exits("c", 0)
	w.want(w.settle(), "stop")
	w.wantPhase(corev1.PodSucceeded)
	w.delete(30)
	w.want(w.settle(), "remove, delete")
	w.wantPhase(corev1.PodSucceeded)
}

// TestRestartOfTheAgent: nothing restarts and nothing is forgotten.
func TestRestartOfTheAgent(t *testing.T) {
	w := newNode(t, corev1.PodSpec{InitContainers: containers("i"), Containers: containers("a")})
	w.settle()
	w.exits("i", 0)
	w.settle()
	before := w.pod.Status.DeepCopy()
	w.state, w.now = &lifecycle.State{}, w.now.Add(time.Hour)
	w.want(w.settle(), "")
	if got := w.pod.Status; !got.ContainerStatuses[0].State.Running.StartedAt.Equal(&before.ContainerStatuses[0].State.Running.StartedAt) || got.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("status: %+v", got)
	}
	w.deaf = true
	w.delete(30)
	w.want(w.passes(20*time.Second), "TERM a")
	w.state = &lifecycle.State{}
	w.want(w.settle(), "TERM a") // it is unknown whether it was sent
	w.exits("a", 0)
	w.want(w.settle(), "remove, delete")
}

func TestStatusOfOthersStays(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	since := metav1.NewTime(begin().Add(-time.Hour))
	w.pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: since}, {Type: "example.com/x", Status: corev1.ConditionUnknown},
	}
	w.pod.Status.QOSClass = corev1.PodQOSBurstable
	w.settle()
	got := w.pod.Status.Conditions
	var order []string
	for _, c := range got {
		order = append(order, string(c.Type))
	}
	if got, want := strings.Join(order, " "), "example.com/x PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled"; got != want {
		t.Fatalf("conditions %s, want %s", got, want)
	}
	if got[0].Status != corev1.ConditionUnknown || !got[5].LastTransitionTime.Equal(&since) || w.pod.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("status: %+v", w.pod.Status)
	}
}

// TestPodThatIsRemovedAndStays checks that a pod that stays in the API after its removal, because of a finalizer or a
// late watch event, is removed again later, and not in a busy loop.
func TestPodThatIsRemovedAndStays(t *testing.T) {
	w := newNode(t, corev1.PodSpec{Containers: containers("a")})
	w.settle()
	w.pod.DeletionTimestamp = &metav1.Time{Time: w.now.Add(30 * time.Second)}
	w.want(w.settle(), "TERM a, remove, delete")
	w.gone = false
	w.want(w.settle(), "")
	if want := w.now.Add(10 * time.Second); !w.plan.Next.Equal(want) {
		t.Errorf("the next decision is due at %s, want %s", w.plan.Next, want)
	}
	w.want(w.passes(10*time.Second), "delete")
	w.gone = false
	w.want(w.passes(19*time.Second), "")
	w.want(w.passes(time.Second), "delete")
}
