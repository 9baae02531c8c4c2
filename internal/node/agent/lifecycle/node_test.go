package lifecycle_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// fakeNode is a node with one pod, and an API. The test configures both and controls the time.
type fakeNode struct {
	t        *testing.T
	now      time.Time
	pod      *corev1.Pod
	gone     bool // the pod is not in the API
	observed lifecycle.Observed
	state    *lifecycle.State
	plan     lifecycle.Plan
	log      []string // the steps since the last settle

	unwell  map[lifecycle.ProbeKind]bool // probes fail
	deaf    bool                         // TERM has no effect
	slow    bool                         // starts stay under way
	exit    int32                        // the exit code after TERM
	startup error                        // the error of Start
	setup   error                        // the error of CreateSandbox
	mute    bool                         // probes cannot be carried out
	final   bool                         // the last RemoveSandbox was final
	hooks   bool                         // preStop hooks end at once

	rejection *lifecycle.Rejection
	events    []lifecycle.Event // of all plans
}

func begin() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func newNode(t *testing.T, spec corev1.PodSpec) *fakeNode {
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(30))
	}
	spec.NodeName = "n"
	return &fakeNode{
		t: t, now: begin(), state: &lifecycle.State{}, unwell: map[lifecycle.ProbeKind]bool{}, hooks: true,
		pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1", Generation: 1},
			Spec:       spec,
			Status:     corev1.PodStatus{Phase: corev1.PodPending},
		},
	}
}

// settle decides and carries out steps until there is nothing to do, and returns the steps.
func (w *fakeNode) settle() string {
	w.t.Helper()
	for range 100 {
		w.plan = lifecycle.Decide(lifecycle.Input{Pod: w.pod, Gone: w.gone, Rejection: w.rejection, Observed: w.observed, HostIPs: []string{"10.0.0.1"}, Now: w.now}, w.state)
		w.events = append(w.events, w.plan.Events...)
		// The changes of a step are decided on before the status is written.
		for _, s := range w.plan.Steps {
			w.do(s)
		}
		if len(w.plan.Steps) > 0 {
			continue
		}
		before := w.pod.Status
		if w.pod.Status = w.plan.Status; equality.Semantic.DeepEqual(before, w.pod.Status) {
			text := strings.Join(w.log, ", ")
			w.log = nil
			return text
		}
	}
	w.t.Fatalf("it does not settle: %v", w.log)
	return ""
}

func (w *fakeNode) do(s lifecycle.Step) {
	var err error
	o := &w.observed
	switch s := s.(type) {
	case lifecycle.CreateSandbox:
		w.note("sandbox")
		if err = w.setup; err != nil {
			break
		}
		o.Sandbox = lifecycle.Sandbox{ID: "s", Ready: true, Created: w.now, IPs: []string{"10.1.0.1"}}
	case lifecycle.StopSandbox:
		w.note("stop")
		o.Sandbox.Ready, o.Sandbox.NoAddress, o.Sandbox.IPs = false, false, nil
	case lifecycle.GiveUp:
		w.note("give up %s", s.Container)
	case lifecycle.RemoveSandbox:
		w.note("remove")
		w.observed, w.final = lifecycle.Observed{}, s.Final
	case lifecycle.Start:
		w.note("start %s", s.Container)
		if w.slow {
			return // under way
		}
		if err = w.startup; err == nil {
			o.Instances = append(o.Instances, lifecycle.Instance{
				ID: fmt.Sprintf("%s-%d", s.Container, s.Attempt), Container: s.Container, Image: s.Image, Attempt: s.Attempt, Backoff: s.Backoff, Started: w.now,
			})
			w.size(s.Container)
		}
	case lifecycle.Resize:
		w.note("resize %s", s.Container)
		w.size(s.Container)
	case lifecycle.Remove:
		for i := range o.Instances {
			if o.Instances[i].ID == s.ID {
				o.Instances = append(o.Instances[:i:i], o.Instances[i+1:]...)
				break
			}
		}
	case lifecycle.Probe:
		switch {
		case w.mute:
			err = lifecycle.UndecidedError{Err: errors.New("no answer")}
		case w.unwell[s.Kind]:
			err = errors.New("unwell")
		}
	case lifecycle.PreStop:
		w.note("preStop %s", s.Container)
		if !w.hooks {
			return // it keeps running
		}
	case lifecycle.Signal:
		w.note("TERM %s", s.Container)
		if w.deaf {
			return // under way until it ends
		}
		w.end(s.ID, w.exit)
	case lifecycle.Kill:
		w.note("KILL %s", s.Container)
		w.end(s.ID, 137)
	case lifecycle.Delete:
		w.note("delete")
		w.gone = true
	}
	w.state.Finished(s, err, w.now)
}

// size gives the instances of a container the resources of the pod.
func (w *fakeNode) size(container string) {
	for i := range w.observed.Instances {
		for _, c := range w.pod.Spec.Containers {
			if o := &w.observed.Instances[i]; o.Container == container && c.Name == container {
				o.Resources = c.Resources.DeepCopy()
			}
		}
	}
}

func (w *fakeNode) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *fakeNode) end(id string, code int32) {
	for i := range w.observed.Instances {
		if o := &w.observed.Instances[i]; o.ID == id && o.Alive() {
			o.Finished, o.ExitCode = w.now, code
		}
	}
}

// exits ends the living instance of a container.
func (w *fakeNode) exits(container string, code int32) {
	w.t.Helper()
	for _, o := range w.observed.Instances {
		if o.Container == container && o.Alive() {
			w.end(o.ID, code)
			return
		}
	}
	w.t.Fatalf("container %s is not alive", container)
}

// delete sends a DELETE with a grace period.
func (w *fakeNode) delete(grace int64) {
	end := metav1.NewTime(w.now.Add(time.Duration(grace) * time.Second))
	w.pod.DeletionTimestamp, w.pod.DeletionGracePeriodSeconds = &end, &grace
}

// passes advances time, carries out the steps that become due meanwhile, and returns them.
func (w *fakeNode) passes(d time.Duration) string {
	w.t.Helper()
	until := w.now.Add(d)
	var log []string
	for !w.now.After(until) {
		if text := w.settle(); text != "" {
			log = append(log, text)
		}
		if w.plan.Next.IsZero() || w.plan.Next.After(until) {
			break
		}
		if !w.plan.Next.After(w.now) {
			w.t.Fatalf("the next time to look is not in the future: %s", w.plan.Next)
		}
		w.now = w.plan.Next
	}
	w.now = until
	if text := w.settle(); text != "" {
		log = append(log, text)
	}
	return strings.Join(log, ", ")
}

// want compares the steps.
func (w *fakeNode) want(got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("at %s: steps\n  %s\nwant\n  %s", w.now.Sub(begin()), got, want)
	}
}

func (w *fakeNode) wantPhase(phase corev1.PodPhase) {
	w.t.Helper()
	if got := w.pod.Status.Phase; got != phase {
		w.t.Errorf("at %s: phase %s, want %s", w.now.Sub(begin()), got, phase)
	}
}

// condition returns the status and the reason of a condition.
func (w *fakeNode) condition(of corev1.PodConditionType) string {
	for _, c := range w.pod.Status.Conditions {
		if c.Type == of {
			return strings.TrimSpace(string(c.Status) + " " + c.Reason)
		}
	}
	return "none"
}

func containers(names ...string) []corev1.Container {
	var all []corev1.Container
	for _, name := range names {
		all = append(all, corev1.Container{Name: name, Image: "i"})
	}
	return all
}

func aSidecar(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}
}
