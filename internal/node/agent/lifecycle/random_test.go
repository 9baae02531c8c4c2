package lifecycle_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// trace is one random life of a pod: steps take time, and fail; containers exit, and get lost; probes
// fail; the sandbox dies; the agent is restarted; the pod is deleted, and deleted again with a shorter grace
// period. The invariants in check must hold at all times.
type trace struct {
	t        *testing.T
	r        *rand.Rand
	now      time.Time
	pod      *corev1.Pod
	observed lifecycle.Observed
	state    *lifecycle.State
	pending  []pendingStep
	log      []string

	deletedAt time.Time
	removed   bool                 // removed from the API by the agent
	gone      bool                 // removed from the API by force
	told      map[string]time.Time // when the end of an instance began, by ID
	ranMain   bool                 // a regular container has been started
	sandboxes int                  // how many have been created
	endedIn   map[string]int       // the sandbox in which the last end of a container was reported
	mainEnded time.Time            // when the last container that is not a sidecar ended
}

type pendingStep struct {
	step lifecycle.Step
	at   time.Time
}

const historyGrace = 30

func newHistory(t *testing.T, seed uint64) *trace {
	r := rand.New(rand.NewPCG(seed, 1))
	h := &trace{t: t, r: r, now: begin(), state: &lifecycle.State{}, told: map[string]time.Time{}, endedIn: map[string]int{}}
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	spec := corev1.PodSpec{RestartPolicy: policies[r.IntN(3)], TerminationGracePeriodSeconds: new(int64(historyGrace))}
	for i := range r.IntN(4) {
		c := containers(fmt.Sprintf("i%d", i))[0]
		if r.IntN(2) == 0 {
			c = aSidecar(c.Name)
		}
		spec.InitContainers = append(spec.InitContainers, c)
	}
	for i := range 1 + r.IntN(3) {
		spec.Containers = append(spec.Containers, containers(fmt.Sprintf("c%d", i))...)
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if r.IntN(3) == 0 {
			c.LivenessProbe = &corev1.Probe{PeriodSeconds: 5}
		}
		if r.IntN(3) == 0 {
			c.StartupProbe = &corev1.Probe{PeriodSeconds: 5}
		}
		if r.IntN(3) == 0 {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{}}}
		}
	}
	h.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: spec, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	return h
}

func (h *trace) decide() {
	was := h.pod.Status
	before := was.Phase
	plan := lifecycle.Decide(lifecycle.Input{Pod: h.pod, Gone: h.gone || h.removed, Observed: h.observed, Now: h.now}, h.state)
	if isFinal(before) && plan.Status.Phase != before {
		h.t.Errorf("phase %s became %s", before, plan.Status.Phase)
	}
	if isFinal(plan.Status.Phase) && !isFinal(before) && h.alive("") {
		h.t.Errorf("phase %s while a container is alive", plan.Status.Phase)
	}
	h.pod.Status = plan.Status
	h.checkEnds(was.InitContainerStatuses, plan.Status.InitContainerStatuses, isFinal(before))
	h.checkEnds(was.ContainerStatuses, plan.Status.ContainerStatuses, isFinal(before))
	for _, s := range plan.Steps {
		h.log = append(h.log, fmt.Sprintf("%s %T%+v", h.now.Sub(begin()), s, s))
		h.checkBegin(s)
		h.pending = append(h.pending, pendingStep{s, h.now.Add(time.Duration(h.r.IntN(4000)) * time.Millisecond)})
	}
}

func isFinal(p corev1.PodPhase) bool { return p == corev1.PodFailed || p == corev1.PodSucceeded }

// checkEnds checks that a container that was reported as terminated, and may not run again, stays terminated.
func (h *trace) checkEnds(before, now []corev1.ContainerStatus, final bool) {
	for i := range before {
		end, is := before[i].State.Terminated, now[i].State.Terminated
		if end == nil {
			if is != nil {
				h.endedIn[now[i].Name] = h.sandboxes
			}
			continue
		}
		if (final || h.isOver(before[i].Name, end.ExitCode)) && (is == nil || *is != *end || now[i].ContainerID != before[i].ContainerID) {
			h.t.Errorf("%s, which had ended for good, is reported as %+v", now[i].Name, now[i].State)
		}
	}
}

// isOver reports whether a container of the pod that has ended must never run again.
func (h *trace) isOver(container string, exitCode int32) bool {
	policy := h.pod.Spec.RestartPolicy
	switch {
	case h.isSidecar(container):
		return false
	case !h.isMain(container) && policy == corev1.RestartPolicyAlways:
		return exitCode == 0 && h.endedIn[container] == h.sandboxes
	}
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && exitCode == 0
}

// alive reports whether a container is alive, or any container for "".
func (h *trace) alive(container string) bool {
	for _, i := range h.observed.Instances {
		if i.Alive() && (container == "" || i.Container == container) {
			return true
		}
	}
	return false
}

func (h *trace) mainAlive() bool {
	for _, c := range h.pod.Spec.Containers {
		if h.alive(c.Name) {
			return true
		}
	}
	return false
}

func (h *trace) isMain(container string) bool {
	return slices.ContainsFunc(h.pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
}

func (h *trace) isSidecar(container string) bool {
	for _, c := range h.pod.Spec.InitContainers {
		if c.Name == container {
			return c.RestartPolicy != nil
		}
	}
	return false
}

// graceOver reports whether the grace period of the deletion is over.
func (h *trace) graceOver() bool {
	return h.gone || !h.deletedAt.IsZero() && !h.now.Before(h.deletedAt.Add(time.Duration(*h.pod.DeletionGracePeriodSeconds)*time.Second))
}

// checkBegin checks the invariants for each step that begins.
func (h *trace) checkBegin(s lifecycle.Step) {
	switch s := s.(type) {
	case lifecycle.Start:
		if !h.deletedAt.IsZero() || h.gone {
			h.t.Errorf("%s is started in a pod that is being deleted", s.Container)
		}
		if end := h.status(s.Container).State.Terminated; end != nil && h.isOver(s.Container, end.ExitCode) {
			h.t.Errorf("%s is started again after it has ended for good", s.Container)
		}
		h.checkOrder(s.Container)
	case lifecycle.PreStop:
		h.tell(s.ID)
	case lifecycle.Signal:
		h.tell(s.ID)
		if h.isSidecar(s.Container) && !h.deletedAt.IsZero() && !h.graceOver() && h.mainAlive() {
			h.t.Errorf("sidecar %s gets TERM while regular containers are alive", s.Container)
		}
	case lifecycle.Kill:
		began, told := h.told[s.ID]
		const grace = historyGrace * time.Second
		// A sidecar has its pod's grace period, and its end begins when the others have ended.
		late := told && !h.now.Before(began.Add(grace)) || !h.mainEnded.IsZero() && !h.mainAlive() && !h.now.Before(h.mainEnded.Add(grace))
		if !h.graceOver() && h.observed.Sandbox.Ready && !late {
			h.t.Errorf("%s is killed before its grace is over", s.ID)
		}
	case lifecycle.RemoveSandbox:
		if h.alive("") {
			h.t.Error("the sandbox is removed while a container is alive")
		}
	case lifecycle.Delete:
		if h.alive("") || h.observed.Sandbox.ID != "" || !isFinal(h.pod.Status.Phase) || h.starting() {
			h.t.Errorf("the pod is deleted in phase %s, sandbox %q", h.pod.Status.Phase, h.observed.Sandbox.ID)
		}
	case lifecycle.StopSandbox:
		if h.alive("") || h.starting() {
			h.t.Error("the sandbox is stopped while a container is alive")
		}
	case lifecycle.GiveUp:
		if h.deletedAt.IsZero() && !h.gone && !h.starting() {
			h.t.Errorf("the start of %s is given up, and is not under way", s.Container)
		}
	case lifecycle.CreateSandbox, lifecycle.Remove, lifecycle.Probe:
	}
}

// status returns the reported status of a container.
func (h *trace) status(container string) corev1.ContainerStatus {
	for _, s := range slices.Concat(h.pod.Status.InitContainerStatuses, h.pod.Status.ContainerStatuses) {
		if s.Name == container {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// tell records that the end of an instance begins.
func (h *trace) tell(id string) {
	if _, ok := h.told[id]; !ok {
		h.told[id] = h.now
	}
}

// checkOrder checks that init containers come first.
func (h *trace) checkOrder(container string) {
	for _, c := range h.pod.Spec.InitContainers {
		if c.Name == container || h.ranMain {
			return
		}
		if c.RestartPolicy != nil {
			continue
		}
		end := h.status(c.Name).State.Terminated
		done := end != nil && end.ExitCode == 0
		for _, i := range h.observed.Instances {
			done = done || i.Container == c.Name && !i.Alive() && i.ExitCode == 0
		}
		if !done {
			h.t.Errorf("%s is started before init container %s has succeeded", container, c.Name)
		}
	}
}

func (h *trace) starting() bool {
	for _, p := range h.pending {
		if _, ok := p.step.(lifecycle.Start); ok {
			return true
		}
	}
	return false
}

// carryOut applies the effect of a step to the node.
func (h *trace) carryOut(s lifecycle.Step) (err error) {
	o := &h.observed
	switch s := s.(type) {
	case lifecycle.CreateSandbox:
		if h.r.IntN(5) == 0 {
			return errors.New("no")
		}
		h.sandboxes++
		o.Sandbox = lifecycle.Sandbox{ID: "s", Ready: true, Created: h.now}
	case lifecycle.StopSandbox:
		o.Sandbox.Ready = false
	case lifecycle.RemoveSandbox:
		h.observed = lifecycle.Observed{}
	case lifecycle.Start:
		if h.r.IntN(5) == 0 || !o.Sandbox.Ready {
			return errors.New("no")
		}
		if h.alive(s.Container) {
			h.t.Errorf("two instances of %s are alive", s.Container)
		}
		h.ranMain = h.ranMain || h.isMain(s.Container)
		id := fmt.Sprintf("%s-%d-%s", s.Container, s.Attempt, h.now.Sub(begin()))
		o.Instances = append(o.Instances, lifecycle.Instance{ID: id, Container: s.Container, Attempt: s.Attempt, Backoff: s.Backoff, Started: h.now})
	case lifecycle.Remove:
		for i := range o.Instances {
			if o.Instances[i].ID == s.ID {
				o.Instances = append(o.Instances[:i:i], o.Instances[i+1:]...)
				break
			}
		}
	case lifecycle.Kill:
		h.end(s.ID, 137)
	case lifecycle.Signal:
		if h.r.IntN(2) == 0 {
			h.end(s.ID, 0)
		}
	case lifecycle.Probe:
		if h.r.IntN(4) == 0 {
			return errors.New("unwell")
		}
	case lifecycle.Delete:
		h.removed = true
	case lifecycle.PreStop:
	}
	return nil
}

func (h *trace) end(id string, code int32) {
	for i := range h.observed.Instances {
		if o := &h.observed.Instances[i]; o.ID == id && o.Alive() {
			o.Finished, o.ExitCode = h.now, code
			if !h.isSidecar(o.Container) {
				h.mainEnded = h.now
			}
		}
	}
}

// advance advances time, and carries out the steps that are due.
func (h *trace) advance(d time.Duration) {
	until := h.now.Add(d)
	for !h.removed || h.observed.Sandbox.ID != "" {
		next := -1
		for i, p := range h.pending {
			if !p.at.After(until) && (next < 0 || p.at.Before(h.pending[next].at)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		p := h.pending[next]
		h.pending = append(h.pending[:next:next], h.pending[next+1:]...)
		if p.at.After(h.now) {
			h.now = p.at
		}
		h.state.Finished(p.step, h.carryOut(p.step), h.now)
		h.decide()
	}
	h.now = until
}

// happen makes one random event happen to the pod.
func (h *trace) happen() {
	switch n := h.r.IntN(20); {
	case n < 4 && len(h.observed.Instances) > 0:
		h.end(h.observed.Instances[h.r.IntN(len(h.observed.Instances))].ID, int32(h.r.IntN(2)))
	case n == 4:
		h.observed.Sandbox.Ready = false
	case n == 5: // the agent is restarted: steps under way may or may not have been carried out
		for _, p := range h.pending {
			if h.r.IntN(2) == 0 && !h.removed {
				_ = h.carryOut(p.step)
			}
		}
		h.pending, h.state = nil, &lifecycle.State{}
	case n == 6 && h.deletedAt.IsZero():
		h.deletedAt = h.now
		h.shorten(int64(1 + h.r.IntN(60)))
	case n == 7 && !h.deletedAt.IsZero() && *h.pod.DeletionGracePeriodSeconds > 1:
		h.shorten(1 + h.r.Int64N(*h.pod.DeletionGracePeriodSeconds))
	case n == 8 && h.r.IntN(4) == 0:
		h.gone = true
	case n == 9 && len(h.observed.Instances) > 0: // the runtime loses a container
		lost := h.r.IntN(len(h.observed.Instances))
		h.end(h.observed.Instances[lost].ID, 137)
		h.observed.Instances = slices.Delete(slices.Clone(h.observed.Instances), lost, lost+1)
	}
	h.decide()
	h.advance(time.Duration(h.r.IntN(10_000)) * time.Millisecond)
}

func (h *trace) shorten(grace int64) {
	end := metav1.NewTime(h.deletedAt.Add(time.Duration(grace) * time.Second))
	h.pod.DeletionTimestamp, h.pod.DeletionGracePeriodSeconds = &end, &grace
}

func TestRandomHistories(t *testing.T) {
	ended := 0
	for seed := range uint64(1000) {
		h := newHistory(t, seed)
		for range 60 {
			h.happen()
		}
		if h.deletedAt.IsZero() {
			h.deletedAt = h.now
			h.shorten(10)
		}
		// From now on nothing else happens: the pod is removed in time.
		for range 400 {
			h.decide()
			h.advance(time.Second)
		}
		if h.alive("") || h.observed.Sandbox.ID != "" || !h.removed && !h.gone {
			t.Errorf("the pod is not gone: %+v", h.observed)
		}
		if h.removed {
			ended++
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%v", seed, h.log)
		}
	}
	if ended < 300 {
		t.Errorf("only %d pods were removed from the API by the agent", ended)
	}
}
