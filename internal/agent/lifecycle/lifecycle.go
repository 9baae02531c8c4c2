// Package lifecycle decides what a node does about one of its pods. It has no I/O, no
// goroutine and no clock.
//
//	the pod, as the API has it ──┐
//	what the runtime observes  ──┼──▶ Decide ──▶ Plan: steps, the pod's status, when to look again
//	State: what was begun      ──┘
//
// It is level-triggered: a plan follows from what is there, never from what has changed.
// What an agent must not forget over a restart is in the runtime (the attempt of a
// container, and the back-off that went before it) or in the pod's status. What State
// holds is lost at a restart, in favour of the pod: probes begin anew from the readiness
// that the status reports, and a termination begins anew with its whole grace period.
//
// A pod begins like this: sandbox; the init containers in their order, each after the
// success of the one before, where one that restarts always (a sidecar) has succeeded when
// it has started; then all other containers. It ends the other way round: all containers
// that are no sidecars at once, then the sidecars one by one, the last one first; each
// preStop, TERM, and KILL when the grace period of the pod is over. When none is alive the
// sandbox goes, then the pod gets its final phase, and then it is removed from the API.
package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Observed is what a runtime knows of one pod.
type Observed struct {
	Sandbox Sandbox
	// Instances are the containers that the runtime has, dead ones too, in any order.
	Instances []Instance
}

// Sandbox is what the containers of a pod share. The zero value stands for none.
type Sandbox struct {
	ID      string
	Attempt int32
	// Ready means that containers can run in it.
	Ready   bool
	Created time.Time
	IPs     []string
}

// Instance is one run of a container. A container that restarts is another instance.
type Instance struct {
	ID        string // with the scheme of the runtime, as in a pod's status
	Container string
	// Attempt counts the instances of a container from 0.
	Attempt int32
	// Backoff is how long the start of this instance was put off.
	Backoff  time.Duration
	Started  time.Time
	Finished time.Time // zero while it is alive
	ExitCode int32
	Reason   string // why it ended, where the exit code does not tell
	Message  string
	ImageID  string
	// ReadyAt is before when it is not ready, whatever probes say.
	ReadyAt time.Time
}

// Alive reports whether the instance has not ended.
func (i *Instance) Alive() bool { return i != nil && i.Finished.IsZero() }

// Plan is what to do about a pod.
type Plan struct {
	// Steps can be begun at once, in this order.
	Steps []Step
	// Status is the pod's status as of now.
	Status corev1.PodStatus
	// Next is when to decide again, if nothing changes before; zero if only changes matter.
	Next time.Time
}

// Step is one thing to do. Steps of one pod that are under way at a time are different
// from one another.
//
//sumtype:decl
type Step interface{ step() }

type (
	// CreateSandbox makes the sandbox.
	CreateSandbox struct{ Attempt int32 }
	// RemoveSandbox frees what the sandbox holds on the node: dead containers, network, mounts.
	RemoveSandbox struct {
		ID string
		// Final means that the pod goes, and with it all else that it has: logs, volumes.
		Final bool
	}
	// Start creates an instance of a container and starts it.
	Start struct {
		Container string
		Attempt   int32
		Backoff   time.Duration // to be kept with the instance
	}
	// Remove removes an instance that has ended, and is not the last one of its container.
	Remove struct{ ID string }
	// Probe asks an instance how it is. It has failed if it ends with an error, unless that
	// is ErrUndecided.
	Probe struct {
		ID, Container string
		Kind          ProbeKind
	}
	// PreStop runs the hook that comes before the end of an instance.
	PreStop struct {
		ID, Container string
		Within        time.Duration
	}
	// Signal tells an instance to end. A runtime kills it if that takes longer than Grace.
	Signal struct {
		ID, Container string
		Grace         time.Duration
	}
	// Kill ends an instance.
	Kill struct{ ID, Container string }
	// Delete removes the pod from the API.
	Delete struct{}
)

func (CreateSandbox) step() {}
func (RemoveSandbox) step() {}
func (Start) step()         {}
func (Remove) step()        {}
func (Probe) step()         {}
func (PreStop) step()       {}
func (Signal) step()        {}
func (Kill) step()          {}
func (Delete) step()        {}

// ProbeKind is one of the three probes that a container may have.
type ProbeKind int

// The probes of a container.
const (
	Startup ProbeKind = iota
	Readiness
	Liveness
	probeKinds
)

// String returns the name that the API has for it.
func (k ProbeKind) String() string {
	return [...]string{"Startup", "Readiness", "Liveness"}[k]
}

// of returns the probe of that kind that a container has, or nil.
func (k ProbeKind) of(c *corev1.Container) *corev1.Probe {
	return [...]*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe}[k]
}
