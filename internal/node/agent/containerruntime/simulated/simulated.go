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
	starting  map[startKey]*start
	addresses addresses
	events    eventQueue
	happening bool            // Run is calling an event
	changed   func(types.UID) // nil before Run
}

// pod is the state of one pod.
type pod struct {
	sandbox lifecycle.Sandbox
	runs    []*instance
}

// startKey identifies the start of a container.
type startKey struct {
	pod       types.UID
	container string
}

// start is the start of a container that is under way.
type start struct{ done func(error) }

// instance is one simulated run of a container.
type instance struct {
	lifecycle.Instance
	settings settings
	told     time.Time     // when it received TERM
	trouble  []trouble     // the events in its log besides start and end
	dropped  int           // the number of dropped events
	gone     bool          // it was removed
	news     chan struct{} // closed when it writes to its log; nil if nobody follows it
}

// New returns a runtime that uses the given clock.
func New(c clock.Clock) *Runtime {
	return &Runtime{clock: c, wake: make(chan struct{}, 1), pods: map[types.UID]*pod{}, starting: map[startKey]*start{}}
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
		if p := r.pods[of.UID]; p != nil {
			r.addresses.free(p.sandbox.IPs)
			for _, run := range p.runs {
				run.remove()
			}
			delete(r.pods, of.UID)
		}
	case lifecycle.Start:
		return r.prepare(of, s, done)
	case lifecycle.Remove:
		if p := r.pods[of.UID]; p != nil {
			p.runs = slices.DeleteFunc(p.runs, func(i *instance) bool {
				if i.ID != s.ID {
					return false
				}
				i.remove()
				return true
			})
		}
	case lifecycle.Probe:
		return false, r.probe(of, s)
	case lifecycle.PreStop:
		return r.hook(of, s, done), nil
	case lifecycle.Signal:
		r.signal(of.UID, s.ID)
	case lifecycle.Kill:
		r.finish(of.UID, s.ID, end{killed, ""})
	case lifecycle.Resize:
		if run := r.alive(of.UID, s.ID); run != nil {
			run.Resources = resourcesOf(of, s.Container)
		}
	case lifecycle.GiveUp:
		r.giveUp(startKey{of.UID, s.Container})
	case lifecycle.Delete: // the agent carries it out
	}
	return false, nil
}

// remove marks an instance as removed. The caller holds the lock.
func (i *instance) remove() {
	i.gone = true
	i.tell()
}

// prepare starts a container, either now or after its start delay.
func (r *Runtime) prepare(of *corev1.Pod, s lifecycle.Start, done func(error)) (later bool, err error) {
	set, err := settingsOf(of, s.Container)
	switch {
	case err != nil:
		return false, lifecycle.StartError{Reason: "CreateContainerConfigError", Err: err}
	case set.failPull:
		return false, lifecycle.StartError{Reason: "ErrImagePull", Err: errors.New("annotation " + Prefix + failPull + " says that there is no such image")}
	case set.startAfter == 0:
		return false, r.start(of, s, set)
	}
	key, begun := startKey{of.UID, s.Container}, &start{done}
	r.starting[key] = begun
	r.schedule(event{r.clock.Now().Add(set.startAfter), func() {
		r.mu.Lock()
		if r.starting[key] != begun { // it was given up
			r.mu.Unlock()
			return
		}
		delete(r.starting, key)
		err := r.start(of, s, set)
		r.mu.Unlock()
		done(err)
	}})
	return true, nil
}

// giveUp cancels a start that is under way: the start delay stands for the pull of an image. The caller holds the lock.
func (r *Runtime) giveUp(key startKey) {
	if begun := r.starting[key]; begun != nil {
		delete(r.starting, key)
		r.schedule(event{r.clock.Now(), func() { begun.done(lifecycle.ErrCanceled) }})
	}
}

// start starts a container. The caller holds the lock.
func (r *Runtime) start(of *corev1.Pod, s lifecycle.Start, set settings) error {
	p := r.pods[of.UID]
	if p == nil {
		return fmt.Errorf("pod %s/%s has no sandbox any more", of.Namespace, of.Name)
	}
	now := r.clock.Now()
	run := &instance{settings: set, Instance: lifecycle.Instance{
		ID: instanceID(of.UID, s.Container, s.Attempt), Container: s.Container, Image: s.Image, Attempt: s.Attempt, Backoff: s.Backoff, Started: now,
		Resources: resourcesOf(of, s.Container),
	}}
	if set.readyAfter > 0 {
		run.ReadyAt = now.Add(set.readyAfter)
	}
	p.runs = append(p.runs, run)
	r.mayExit(of.UID, run)
	return nil
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
	r.endAt(run.Started.Add(set.exitAfter), uid, run.ID, end{set.exitCode, set.exitReason})
}

// end describes how a container ends.
type end struct {
	code   int32
	reason string
}

func (r *Runtime) endAt(at time.Time, uid types.UID, id string, how end) {
	r.schedule(event{at, func() {
		r.mu.Lock()
		r.finish(uid, id, how)
		changed := r.changed
		r.mu.Unlock()
		changed(uid)
	}})
}

// finish ends an instance if it is alive. The caller holds the lock.
func (r *Runtime) finish(uid types.UID, id string, how end) {
	if run := r.alive(uid, id); run != nil {
		run.Finished, run.ExitCode, run.Reason = r.clock.Now(), how.code, how.reason
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
		r.endAt(run.told.Add(set.termTakes), uid, id, end{set.termCode, ""})
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

// hook runs a preStop hook, and reports whether done will be called later. The caller holds the
// lock.
func (r *Runtime) hook(of *corev1.Pod, s lifecycle.PreStop, done func(error)) (later bool) {
	run := r.alive(of.UID, s.ID)
	if run == nil {
		return false
	}
	takes := run.settings.hookTakes
	if c := find(of, s.Container); c != nil && c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
		takes = time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	if takes <= 0 {
		return false
	}
	r.schedule(event{r.clock.Now().Add(min(takes, s.Within)), func() { done(nil) }})
	return true
}
