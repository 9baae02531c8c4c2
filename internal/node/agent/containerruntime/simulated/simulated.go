// Package simulated is a container runtime without containers: it only computes when they would
// have started and ended. It does so in real time, so that the status of pods changes as it would
// with real containers. Annotations of a pod determine how its containers behave (settings.go,
// docs/nodes.md). A container without annotations starts at once, is healthy, and runs until it
// receives TERM, after which it exits at once with code 0.
//
// All pods of all nodes of a process share one event queue and one goroutine; a pod that just runs
// costs no CPU time. The state is lost with the process and restored from the status of the pods
// (Adopt), so that no container restarts because of that.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// killed is the exit code of a container that was killed.
const killed = 137

// Runtime simulates containers. Create one with New.
type Runtime struct {
	clock clock.Clock
	wake  chan struct{} // has an element if the first event may have changed

	mu        sync.Mutex
	pods      map[types.UID]*pod // guarded by mu, like all fields below
	addresses addresses
	events    eventQueue
	happening bool            // Run is calling an event
	changed   func(types.UID) // nil before Run
}

// pod is the state of one pod.
type pod struct {
	sandbox  lifecycle.Sandbox
	runs     []*instance
	starting map[string]*start // by container
}

// start is the start of a container that is under way.
type start struct {
	event     *event
	step      lifecycle.Start
	settings  settings
	resources *corev1.ResourceRequirements
	done      func(error)
}

// instance is one simulated run of a container.
type instance struct {
	lifecycle.Instance
	settings settings
	told     time.Time     // when it received TERM
	trouble  []trouble     // the events in its log besides start and end
	dropped  int           // the number of dropped events
	gone     bool          // it was removed
	news     chan struct{} // closed when it writes to its log; nil if nobody follows it
	ends     []*event      // its scheduled ends
	hook     *hook         // its preStop hook, while it runs
}

// hook is a preStop hook that is under way.
type hook struct {
	event *event
	done  func(error)
}

// New returns a runtime that uses the given clock.
func New(c clock.Clock) *Runtime {
	return &Runtime{clock: c, wake: make(chan struct{}, 1), pods: map[types.UID]*pod{}}
}

// ForNode returns a runtime for a node that is alone in its process.
func ForNode(c clock.Clock, node string) *Runtime {
	r := New(c)
	r.addresses.startFor(node)
	return r
}

// Name implements agent.Runtime.
func (r *Runtime) Name() string { return scheme }

// Version implements agent.Runtime.
func (r *Runtime) Version() string { return "1" }

// scheme is the prefix of the IDs of simulated containers.
const scheme = "simulated"

// Observe implements agent.Runtime.
func (r *Runtime) Observe(uid types.UID) lifecycle.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[uid]
	if p == nil {
		return lifecycle.Observed{}
	}
	o := lifecycle.Observed{Sandbox: p.sandbox, Instances: make([]lifecycle.Instance, 0, len(p.runs))}
	for _, run := range p.runs {
		o.Instances = append(o.Instances, run.Instance)
	}
	return o
}

// Known implements agent.Runtime.
func (r *Runtime) Known() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.pods))
}

// Forget implements agent.Runtime. Simulated pods leave nothing behind.
func (r *Runtime) Forget(types.UID) {}

// Do implements agent.Runtime.
func (r *Runtime) Do(_ context.Context, of *corev1.Pod, s lifecycle.Step, done func(error)) {
	r.mu.Lock()
	later, err := r.do(of, s, done)
	r.mu.Unlock()
	if !later {
		done(err)
	}
}

// do carries out a step, and reports whether done will be called later. The caller holds the lock.
func (r *Runtime) do(of *corev1.Pod, s lifecycle.Step, done func(error)) (later bool, err error) {
	now := r.clock.Now()
	switch s := s.(type) {
	case lifecycle.CreateSandbox:
		r.discard(of.UID)
		ip := r.addresses.take()
		r.pods[of.UID] = &pod{
			sandbox: lifecycle.Sandbox{ID: string(of.UID), Attempt: s.Attempt, Ready: true, Created: now, IPs: []string{ip}},
		}
	case lifecycle.StopSandbox:
		if p := r.pods[of.UID]; p != nil {
			r.addresses.free(p.sandbox.IPs)
			p.sandbox.Ready, p.sandbox.IPs = false, nil
		}
	case lifecycle.RemoveSandbox:
		r.discard(of.UID)
	case lifecycle.Start:
		return r.prepare(of, s, done)
	case lifecycle.Remove:
		if p := r.pods[of.UID]; p != nil {
			p.runs = slices.DeleteFunc(p.runs, func(i *instance) bool {
				if i.ID != s.ID {
					return false
				}
				r.remove(i)
				return true
			})
		}
	case lifecycle.Probe:
		return false, r.probe(of, s)
	case lifecycle.PreStop:
		return r.preStop(of, s, done), nil
	case lifecycle.Signal:
		r.signal(of.UID, s.ID)
	case lifecycle.Kill:
		r.finish(of.UID, s.ID, end{killed, ""})
	case lifecycle.Resize:
		if run := r.alive(of.UID, s.ID); run != nil {
			run.Resources = resourcesOf(of, s.Container)
		}
	case lifecycle.GiveUp:
		r.giveUp(of.UID, s.Container)
	case lifecycle.Delete: // the agent carries it out
	}
	return false, nil
}

// prepare starts a container, either now or after its start delay.
func (r *Runtime) prepare(of *corev1.Pod, s lifecycle.Start, done func(error)) (later bool, err error) {
	set, err := settingsOf(of, s.Container)
	p := r.pods[of.UID]
	switch {
	case err != nil:
		return false, lifecycle.StartError{Reason: "CreateContainerConfigError", Err: err}
	case set.failPull:
		return false, lifecycle.StartError{Reason: "ErrImagePull", Err: errors.New("annotation " + Prefix + failPull + " says that there is no such image")}
	case p == nil:
		return false, fmt.Errorf("pod %s/%s has no sandbox any more", of.Namespace, of.Name)
	}
	begun := &start{step: s, settings: set, resources: resourcesOf(of, s.Container), done: done}
	if set.startAfter == 0 {
		r.start(of.UID, begun)
		return false, nil
	}
	r.giveUp(of.UID, s.Container)
	if p.starting == nil {
		p.starting = map[string]*start{}
	}
	p.starting[s.Container] = begun
	begun.event = r.schedule(event{at: r.clock.Now().Add(set.startAfter), kind: startDue, pod: of.UID, name: s.Container})
	return true, nil
}

// giveUp cancels a start that is under way: the start delay stands for the pull of an image. The caller holds the lock.
func (r *Runtime) giveUp(uid types.UID, container string) {
	if begun := r.takeStart(uid, container); begun != nil {
		r.cancel(begun.event)
		r.answer(begun.done, lifecycle.ErrCanceled)
	}
}

// takeStart removes and returns the start of a container that is under way, or returns nil. The caller holds the lock.
func (r *Runtime) takeStart(uid types.UID, container string) *start {
	p := r.pods[uid]
	if p == nil {
		return nil
	}
	begun := p.starting[container]
	delete(p.starting, container)
	return begun
}

// start starts a container of a pod that has a sandbox. The caller holds the lock.
func (r *Runtime) start(uid types.UID, begun *start) {
	now, s, set := r.clock.Now(), begun.step, begun.settings
	run := &instance{settings: set, Instance: lifecycle.Instance{
		ID: instanceID(uid, s.Container, s.Attempt), Container: s.Container, Image: s.Image, Attempt: s.Attempt, Backoff: s.Backoff, Started: now,
		Resources: begun.resources,
	}}
	if set.readyAfter > 0 {
		run.ReadyAt = now.Add(set.readyAfter)
	}
	r.pods[uid].runs = append(r.pods[uid].runs, run)
	r.mayExit(uid, run)
}

// resourcesOf returns the resources of a container. An ephemeral container has none, and is not
// resized.
func resourcesOf(of *corev1.Pod, container string) *corev1.ResourceRequirements {
	c := find(of, container)
	if c == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
}

// find returns a container or an init container of a pod, or nil.
func find(of *corev1.Pod, container string) *corev1.Container {
	for _, all := range [][]corev1.Container{of.Spec.Containers, of.Spec.InitContainers} {
		for i := range all {
			if all[i].Name == container {
				return &all[i]
			}
		}
	}
	return nil
}

func instanceID(uid types.UID, container string, attempt int32) string {
	return fmt.Sprintf("%s://%s_%s_%d", scheme, uid, container, attempt)
}

// mayExit schedules the exit of a container that exits on its own.
func (r *Runtime) mayExit(uid types.UID, run *instance) {
	set := run.settings
	if !set.exits || set.exitTimes >= 0 && int64(run.Attempt) >= set.exitTimes {
		return
	}
	r.endAt(run.Started.Add(set.exitAfter), uid, run, end{set.exitCode, set.exitReason})
}

// end describes how a container ends.
type end struct {
	code   int32
	reason string
}

// endAt schedules the end of an instance. The caller holds the lock.
func (r *Runtime) endAt(at time.Time, uid types.UID, run *instance, how end) {
	run.ends = append(run.ends, r.schedule(event{at: at, kind: endDue, pod: uid, name: run.ID, how: how}))
}

// finish ends an instance if it is alive. The caller holds the lock.
func (r *Runtime) finish(uid types.UID, id string, how end) {
	if run := r.alive(uid, id); run != nil {
		run.Finished, run.ExitCode, run.Reason = r.clock.Now(), how.code, how.reason
		r.settle(run)
		run.tell()
	}
}

// alive returns an instance that has not ended, or nil. The caller holds the lock.
func (r *Runtime) alive(uid types.UID, id string) *instance {
	if p := r.pods[uid]; p != nil {
		for _, run := range p.runs {
			if run.ID == id && run.Alive() {
				return run
			}
		}
	}
	return nil
}

// signal sends TERM. The caller holds the lock.
func (r *Runtime) signal(uid types.UID, id string) {
	run := r.alive(uid, id)
	if run == nil {
		return
	}
	run.told = r.clock.Now()
	run.tell()
	switch set := run.settings; {
	case set.ignoreTerm:
	case set.termTakes > 0:
		r.endAt(run.told.Add(set.termTakes), uid, run, end{set.termCode, ""})
	default:
		r.finish(uid, id, end{set.termCode, ""})
	}
}

// probe returns the result of a probe. The caller holds the lock.
func (r *Runtime) probe(of *corev1.Pod, s lifecycle.Probe) error {
	run := r.alive(of.UID, s.ID)
	if run == nil {
		return errors.New("the container has ended")
	}
	now := r.clock.Now()
	fails, err := probeFails(of, s.Container, probeName(s.Kind), now.Sub(run.Started))
	if err == nil && fails {
		err = errors.New("the annotations of the pod say so")
	}
	if err != nil {
		run.note(now, fmt.Sprintf("%s probe failed: %v", s.Kind, err))
	}
	return err
}

func probeName(k lifecycle.ProbeKind) string {
	return [...]string{lifecycle.Startup: "startup", lifecycle.Readiness: "readiness", lifecycle.Liveness: "liveness"}[k]
}

// preStop runs a preStop hook, and reports whether done will be called later. The hook ends with its instance. The caller
// holds the lock.
func (r *Runtime) preStop(of *corev1.Pod, s lifecycle.PreStop, done func(error)) (later bool) {
	run := r.alive(of.UID, s.ID)
	if run == nil {
		return false
	}
	takes := run.settings.hookTakes
	if c := find(of, s.Container); c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
		takes = pods.Seconds(c.Lifecycle.PreStop.Sleep.Seconds)
	}
	if takes <= 0 {
		return false
	}
	if run.hook != nil {
		return false // it runs once
	}
	run.hook = &hook{done: done}
	run.hook.event = r.schedule(event{at: r.clock.Now().Add(min(takes, s.Within)), kind: hookDue, pod: of.UID, name: s.ID})
	return true
}
