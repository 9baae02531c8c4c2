// Package lifecycle decides what a node does about one of its pods. It has no I/O, no goroutine and
// no clock.
//
//	the pod in the API         ──┐
//	the state in the runtime   ──┼──▶ Decide ──▶ Plan: steps, the pod's status, the time of the next decision
//	State: the begun steps     ──┘
//
// It is level-triggered: a plan depends on the current state, not on the changes that led to it.
// The state that an agent must remember across a restart is in the runtime (the attempt number of a
// container and the back-off that preceded it) or in the pod's status. The contents of State are
// lost at a restart, which is safe for the pod: probes start over from the readiness in the status,
// and a termination starts over with its whole grace period.
//
// A pod starts as follows: the sandbox; the init containers in order, each once the one before has
// succeeded, or has started if its restartPolicy is Always (a sidecar); then all regular
// containers. Ephemeral containers start as soon as they are added and a sandbox exists. They do
// not affect the state of the pod. The pod ends in reverse: all preStop hooks begin at once, and a
// container gets TERM after its hook. The sidecars wait until the regular containers have ended,
// and then end one by one, the last one first. When the pod's grace period is over, the containers
// that are alive are killed. An image that is being pulled is given up. When no container is alive,
// the sandbox is stopped, then the pod gets its final phase. If the pod is being deleted, the
// sandbox is removed, and then the pod is removed from the API.
package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Observed is the state of a pod in the runtime.
type Observed struct {
	// Unknown means that the runtime has the pod, or may have it, and cannot describe it yet. No decision is possible.
	Unknown bool
	Sandbox Sandbox
	// Instances are the containers in the runtime, dead ones included, in any order.
	Instances []Instance
}

// Sandbox is the environment that the containers of a pod share. The zero value means that the pod has none.
type Sandbox struct {
	ID      string
	Attempt int32
	// Ready reports whether containers can run in it.
	Ready bool
	// NoAddress means that it is not ready because it has no address: its network is not ready.
	NoAddress bool
	Created   time.Time
	IPs       []string
}

// Instance is one run of a container. A container that restarts is another instance.
type Instance struct {
	ID        string // with the runtime's scheme, as in a pod's status
	Container string
	// Attempt counts the instances of a container from 0.
	Attempt int32
	// Backoff is the delay that preceded the start of this instance.
	Backoff  time.Duration
	Started  time.Time
	Finished time.Time // zero while it is alive
	ExitCode int32
	Reason   string // why it ended, if the exit code does not show it
	Message  string
	// Image is the image that the container's spec named when the instance was created, or "" if that is unknown.
	Image   string
	ImageID string
	// User is the initial user of its first process. Nil: the runtime does not report it.
	User *corev1.LinuxContainerUser
	// ReadyAt is the time before which it is not ready, whatever its probes return.
	ReadyAt time.Time
	// Resources are its requests and limits. Nil: the runtime does not resize.
	Resources *corev1.ResourceRequirements
}

// Alive reports whether there is an instance that has not ended.
func (i *Instance) Alive() bool { return i != nil && i.Finished.IsZero() }

// Plan is the result of a decision about a pod.
type Plan struct {
	// Steps are the steps that can be begun at once, in this order.
	Steps []Step
	// Events are the Events to record for the steps that begin.
	Events []Event
	// Status is the pod's current status.
	Status corev1.PodStatus
	// Next is the time of the next decision if nothing changes before, or zero if none is needed.
	Next time.Time
}

// Step is one step for a pod. Steps of one pod that are under way at the same time are different
// from one another.
//
//sumtype:decl
type Step interface{ step() }

type (
	// CreateSandbox creates the sandbox.
	CreateSandbox struct{ Attempt int32 }
	// StopSandbox frees the network of the sandbox of a finished pod, its addresses and its volumes. The dead
	// containers and their logs stay.
	StopSandbox struct{ ID string }
	// RemoveSandbox frees the node's resources that belong to the sandbox: dead containers,
	// network, mounts.
	RemoveSandbox struct {
		ID string
		// Final means that the pod is going away, so that its logs, and volumes that are left, are removed too.
		Final bool
	}
	// Start creates and starts an instance of a container.
	Start struct {
		Container string
		Image     string // a failure counts for this image only
		Attempt   int32
		Backoff   time.Duration // recorded with the instance
	}
	// GiveUp cancels the start of a container while its image is being pulled.
	GiveUp struct{ Container string }
	// Remove removes an instance that has ended and is not the last one of its container.
	Remove struct{ ID string }
	// Probe probes an instance. An error other than UndecidedError is a failure of the probe.
	Probe struct {
		ID, Container string
		Kind          ProbeKind
	}
	// PreStop runs the preStop hook of an instance.
	PreStop struct {
		ID, Container string
		Within        time.Duration
	}
	// Signal sends TERM to an instance. The runtime kills it if it has not ended after Grace.
	Signal struct {
		ID, Container string
		Grace         time.Duration
	}
	// Kill kills an instance.
	Kill struct{ ID, Container string }
	// Resize gives an instance the current resources of the pod.
	Resize struct{ ID, Container string }
	// Delete removes the pod from the API.
	Delete struct{}
)

func (CreateSandbox) step() {}
func (StopSandbox) step()   {}
func (RemoveSandbox) step() {}
func (Start) step()         {}
func (GiveUp) step()        {}
func (Remove) step()        {}
func (Probe) step()         {}
func (PreStop) step()       {}
func (Signal) step()        {}
func (Kill) step()          {}
func (Resize) step()        {}
func (Delete) step()        {}

// ProbeKind is one of the three kinds of probes.
type ProbeKind int

// The kinds of probes.
const (
	Startup ProbeKind = iota
	Readiness
	Liveness
	probeKinds
)

// String returns the name of the probe in the API.
func (k ProbeKind) String() string {
	return [...]string{"Startup", "Readiness", "Liveness"}[k]
}

// of returns the probe of that kind of a container, or nil.
func (k ProbeKind) of(c *corev1.Container) *corev1.Probe {
	return [...]*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe}[k]
}
