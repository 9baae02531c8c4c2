package simulated_test

import (
	"context"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/simulated"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// node is a running runtime, in the fake time of a test, with an agent that carries out each plan
// at once.
type node struct {
	t       *testing.T
	runtime *simulated.Runtime
	began   time.Time

	mu   sync.Mutex
	pod  *corev1.Pod // guarded by mu, like all fields below
	kept lifecycle.State
	next time.Time
	gone bool
}

func newNode(t *testing.T, pod *corev1.Pod) *node {
	n := &node{t: t, runtime: simulated.New(clock.RealClock{}), pod: pod, began: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		if err := n.runtime.Run(ctx, func(types.UID) { n.decide() }); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	n.runtime.Adopt(pod)
	n.decide()
	return n
}

// stored returns the pod as stored in the API.
func (n *node) stored() *corev1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pod.DeepCopy()
}

func (n *node) decide() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for again := true; again; {
		plan := lifecycle.Decide(lifecycle.Input{Pod: n.pod, Gone: n.gone, Observed: n.runtime.Observe(n.pod.UID), Now: time.Now()}, &n.kept)
		before := n.pod.Status.Phase
		n.pod.Status, n.next = plan.Status, plan.Next
		for _, s := range plan.Steps {
			if _, ok := s.(lifecycle.Delete); ok {
				n.gone = true
			}
			sync := true
			n.runtime.Do(n.t.Context(), n.pod, s, func(err error) {
				if !sync {
					n.mu.Lock()
					defer func() {
						n.mu.Unlock()
						n.decide()
					}()
				}
				n.kept.Finished(s, err, time.Now())
			})
			sync = false
		}
		again = len(plan.Steps) > 0 || before != plan.Status.Phase
	}
}

func (n *node) passes(d time.Duration) {
	until := time.Now().Add(d)
	for {
		n.mu.Lock()
		next := n.next
		n.mu.Unlock()
		if next.IsZero() || next.After(until) {
			break
		}
		time.Sleep(time.Until(next))
		synctest.Wait()
		n.decide()
	}
	time.Sleep(time.Until(until))
	synctest.Wait()
}

// state returns the state of the container as kubectl would show it.
func (n *node) state() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.pod.Status.ContainerStatuses[0]
	switch {
	case s.State.Running != nil && s.Ready:
		return "Ready"
	case s.State.Running != nil:
		return "Running"
	case s.State.Terminated != nil:
		return s.State.Terminated.Reason
	}
	return s.State.Waiting.Reason
}

func (n *node) want(state string) {
	n.t.Helper()
	if got := n.state(); got != state {
		n.t.Errorf("after %s: %s, want %s", time.Since(n.began), got, state)
	}
}

// aPod returns a pod with one container and annotations: name, value, name, value.
func aPod(annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	for i := 0; i < len(annotations); i += 2 {
		pod.Annotations[simulated.Prefix+annotations[i]] = annotations[i+1]
	}
	return pod
}

func (n *node) delete(grace int64) {
	n.mu.Lock()
	end := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
	n.pod.DeletionTimestamp, n.pod.DeletionGracePeriodSeconds = &end, &grace
	n.mu.Unlock()
	n.decide()
}

func (n *node) wantGone(gone bool) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone != gone {
		n.t.Errorf("after %s: removed from the API: %t", time.Since(n.began), n.gone)
	}
}

func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod())
		n.want("Ready")
		n.passes(time.Hour)
		n.delete(30)
		n.wantGone(true)
		if code := n.pod.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 0 || n.pod.Status.Phase != corev1.PodSucceeded {
			t.Errorf("exit code %d, phase %s", code, n.pod.Status.Phase)
		}
		if known := n.runtime.Known(); len(known) > 0 {
			t.Errorf("left: %v", known)
		}
	})
}

func TestStartAndReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("start-after", "2s", "ready-after", "5s"))
		n.want("ContainerCreating")
		n.passes(2*time.Second - 1)
		n.want("ContainerCreating")
		n.passes(1)
		n.want("Running")
		n.passes(5*time.Second - 1)
		n.want("Running")
		n.passes(1)
		n.want("Ready")
	})
}

// TestStartIsGivenUp checks that a pod that is deleted while its container is being created does not wait for it, and
// that the container never starts.
func TestStartIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("start-after", "1h"))
		n.passes(time.Minute)
		n.want("ContainerCreating")
		n.delete(30)
		synctest.Wait()
		n.wantGone(true)
		n.passes(2 * time.Hour)
		if known := n.runtime.Known(); len(known) > 0 {
			t.Errorf("left: %v", known)
		}
		if got := n.stored().Status.ContainerStatuses[0]; got.State.Running != nil || got.LastTerminationState.Terminated != nil {
			t.Errorf("the container is %+v", got)
		}
	})
}

func TestContainerExitsAsItsAnnotationsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("exit-after", "10s", "exit-code", "3", "exit-after-times", "2", "exit-reason.c", "OOMKilled"))
		n.passes(10 * time.Second) // again at once
		n.want("Ready")
		n.passes(10 * time.Second)
		n.want("CrashLoopBackOff")
		if got := n.pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; got.ExitCode != 3 || got.Reason != "OOMKilled" {
			t.Errorf("it ended with %+v", got)
		}
		n.passes(10 * time.Second)
		n.want("Ready")
		n.passes(time.Hour)
		n.want("Ready")
	})
}

func TestContainerEndsAfterTermAsItsAnnotationsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("term-takes", "4s", "term-exit-code", "143"))
		n.delete(30)
		n.passes(4*time.Second - 1)
		n.wantGone(false)
		n.passes(1)
		n.wantGone(true)
		if code := n.pod.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 143 {
			t.Errorf("exit code %d", code)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("ignore-term", "true"))
		n.delete(30)
		n.passes(30*time.Second - 1)
		n.wantGone(false)
		n.passes(1)
		n.wantGone(true)
		if code := n.pod.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 137 {
			t.Errorf("exit code %d", code)
		}
	})
}

// TestPreStopHook checks that a hook that sleeps takes its time, also that of a sidecar.
func TestPreStopHook(t *testing.T) {
	for name, hooked := range map[string]func(*corev1.PodSpec) *corev1.Container{
		"a container": func(of *corev1.PodSpec) *corev1.Container { return &of.Containers[0] },
		"a sidecar": func(of *corev1.PodSpec) *corev1.Container {
			of.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			return &of.InitContainers[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := aPod()
				hooked(&pod.Spec).Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 7}}}
				n := newNode(t, pod)
				n.delete(30)
				n.passes(7*time.Second - 1)
				n.wantGone(false)
				n.passes(1)
				n.wantGone(true)
			})
		})
	}
}

// A hook may sleep for more seconds than a duration can have. Its container has the whole grace period.
func TestPreStopHookOfAnyLength(t *testing.T) {
	for _, seconds := range []int64{9_300_000_000, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			pod := aPod()
			pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}
			n := newNode(t, pod)
			n.delete(30)
			n.passes(29 * time.Second)
			n.wantGone(false)
		})
	}
}

func TestProbesFailAsTheirAnnotationsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := aPod("fail-readiness-after", "1m", "fail-liveness-after", "2m")
		probe := &corev1.Probe{PeriodSeconds: 5, FailureThreshold: 2}
		pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe = probe, probe
		n := newNode(t, pod)
		n.want("Ready")
		n.passes(time.Minute)
		n.want("Ready") // a single failure does not count
		n.passes(5 * time.Second)
		n.want("Running")
		n.passes(time.Minute)
		if got := n.pod.Status.ContainerStatuses[0].RestartCount; got != 1 {
			t.Errorf("%d restarts", got)
		}
		text := n.logs(&corev1.PodLogOptions{Container: "c", Previous: true})
		for _, line := range []string{"started, attempt 0", "Readiness probe failed", "Liveness probe failed", "TERM", "exit code 0"} {
			if !strings.Contains(text, line) {
				t.Errorf("the log of the instance before does not say %q:\n%s", line, text)
			}
		}
	})
}

func (n *node) logs(o *corev1.PodLogOptions) string {
	n.t.Helper()
	r, err := n.runtime.Logs(n.t.Context(), n.pod, o)
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

func TestLogOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("exit-after", "10s", "exit-after-times", "1"))
		n.passes(10 * time.Second)
		tail := int64(1)
		if got := n.logs(&corev1.PodLogOptions{Container: "c", Previous: true, TailLines: &tail}); got != "simulated: exit code 0\n" {
			t.Errorf("the last line: %q", got)
		}
		if got := n.logs(&corev1.PodLogOptions{Container: "c", Timestamps: true}); !strings.HasPrefix(got, "2000-01-01T00:00:10Z simulated: container c started, attempt 1") {
			t.Errorf("with timestamps: %q", got)
		}
		if _, err := n.runtime.Logs(t.Context(), n.pod, &corev1.PodLogOptions{Container: "other"}); err == nil {
			t.Error("a container that is not there has logs")
		}
	})
}

func TestAnnotationThatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("exit-after", "soon"))
		n.want("CreateContainerConfigError")
		if got := n.pod.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(got, `"soon"`) {
			t.Errorf("message %q", got)
		}
	})
}

func TestNoSuchImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("fail-pull", "true"))
		n.want("ErrImagePull")
		n.passes(10 * time.Second)
		n.want("ImagePullBackOff")
	})
}

// TestAnotherProcess checks that containers keep running and waiting across a restart of the process.
func TestAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newNode(t, aPod("exit-after", "1h"))
		first.passes(20 * time.Minute)
		second := newNode(t, first.stored())
		second.want("Ready")
		if got := second.pod.Status.ContainerStatuses[0]; got.RestartCount != 0 || !got.State.Running.StartedAt.Time.Equal(first.began.Truncate(time.Second)) {
			t.Errorf("after the restart: %+v", got)
		}
		second.passes(40 * time.Minute)
		if got := second.pod.Status.ContainerStatuses[0].RestartCount; got != 1 {
			t.Errorf("%d restarts an hour after its start", got)
		}
		if got := second.pod.Status.PodIP; got != "10.128.0.1" {
			t.Errorf("its address is %s now", got)
		}
	})
}

// TestAnotherProcessDebugsAndResizes checks that ephemeral containers, and the resources of containers, are restored
// from the status, too.
func TestAnotherProcessDebugsAndResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		amounts := func(cpu string) corev1.ResourceRequirements {
			return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
		}
		pod := aPod()
		pod.Spec.Containers[0].Resources = amounts("1")
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d"}}}
		first := newNode(t, pod)
		kept := first.stored()
		kept.Spec.Containers[0].Resources = amounts("2") // while no process runs
		second := newNode(t, kept)
		d := second.pod.Status.EphemeralContainerStatuses[0]
		if d.State.Running == nil || d.RestartCount != 0 || d.ContainerID != first.pod.Status.EphemeralContainerStatuses[0].ContainerID {
			t.Errorf("the ephemeral container is %+v", d)
		}
		c := second.pod.Status.ContainerStatuses[0]
		if c.RestartCount != 0 || c.Resources == nil || c.Resources.Requests.Cpu().String() != "2" {
			t.Errorf("the container is %+v", c)
		}
	})
}

// TestFinishedPodFreesItsAddress checks that a finished pod frees its address at once, and that its logs can be read
// until it is deleted, also after a restart of the process.
func TestFinishedPodFreesItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := aPod("exit-after", "10s")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		first := newNode(t, pod)
		first.passes(10 * time.Second)
		first.want("Completed")
		if got := first.runtime.Observe("u1").Sandbox; got.Ready || len(got.IPs) != 0 {
			t.Errorf("its sandbox is %+v", got)
		}
		if got := first.stored().Status.PodIP; got != "10.128.0.1" {
			t.Errorf("the status has the address %s", got)
		}
		second := newNode(t, first.stored())
		second.want("Completed")
		for _, n := range []*node{first, second} {
			if got := n.logs(&corev1.PodLogOptions{Container: "c"}); !strings.Contains(got, "simulated: exit code 0") {
				t.Errorf("the log is %q", got)
			}
		}
		other := aPod()
		other.UID = "u2"
		second.runtime.Do(t.Context(), other, lifecycle.CreateSandbox{}, func(error) {})
		if got := second.runtime.Observe("u2").Sandbox.IPs; len(got) != 1 || got[0] != "10.128.0.1" {
			t.Errorf("the next pod has the address %s", got)
		}
		second.delete(30)
		second.wantGone(true)
	})
}

// TestFailedPodThatNeverRan checks that a pod that failed before it had a container is unknown after a restart of the
// process.
func TestFailedPodThatNeverRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := aPod()
		pod.Status.Phase = corev1.PodFailed
		n := newNode(t, pod)
		if known := n.runtime.Known(); len(known) != 0 {
			t.Errorf("known: %v", known)
		}
	})
}
