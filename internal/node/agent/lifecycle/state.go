package lifecycle

import (
	"errors"
	"time"
)

// State is an agent's memory of a pod between two decisions. The zero value belongs to a pod that
// is new to the agent. It is not safe for concurrent use.
type State struct {
	removed   bool                      // the API has accepted the removal
	ending    time.Time                 // when its termination began, for any reason
	leaving   time.Time                 // when its deletion was first seen
	stopped   string                    // the ID of the sandbox that was stopped last
	running   map[Step]struct{}         // steps that have begun and not finished
	instances map[string]*instanceState // by ID
	givenUp   map[string]struct{}       // containers whose start is under way, and must be cancelled
	failed    map[string]*failure       // by container, or by ID of an instance or sandbox that could not be ended or removed
}

// Further keys of State.failed. No container can have such a name.
const (
	sandbox = "(sandbox)"
	removal = "(removal)"
)

// errImagePull is the reason of a StartError if the image could not be pulled.
const errImagePull = "ErrImagePull"

// errThere means that a pod is still in the API after its removal.
var errThere = errors.New("the pod is still there")

// instanceState is the state of one instance.
type instanceState struct {
	stopping  time.Time     // when it was decided to stop this instance alone
	replaced  bool          // because the spec names another image: the next one follows whatever the restart policy is
	grace     time.Duration // its grace period
	hookBegan time.Time
	hookEnded bool
	signaled  time.Time
	killed    time.Time
	probes    [probeKinds]probing
}

// probing is the state of one probe.
type probing struct {
	last      time.Time // when it last began
	outcome   outcome
	successes int32 // consecutive
	failures  int32 // consecutive
}

// outcome is the result of a probe after its thresholds.
type outcome int

const (
	undecided outcome = iota
	passing
	failing
)

// failure records failed attempts.
type failure struct {
	at      time.Time
	count   int
	reason  string
	message string
	image   string // of the container that failed to start
}

// StartError is an error of starting a container or a sandbox, with the reason for the pod's
// status.
type StartError struct {
	Reason string // such as ErrImagePull
	Err    error
}

// Error implements error.
func (e StartError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e StartError) Unwrap() error { return e.Err }

// UndecidedError is the result of a probe that could not be carried out: it says nothing about the container's health.
type UndecidedError struct {
	Err error // why; nil if that does not concern the user
}

// Error implements error.
func (e UndecidedError) Error() string {
	if e.Err == nil {
		return "probe undecided"
	}
	return "probe undecided: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e UndecidedError) Unwrap() error { return e.Err }

// ErrCanceled is the result of a step that was cancelled: the agent is stopping, or has given up an image.
var ErrCanceled = errors.New("step cancelled")

func isStartError(err error) bool {
	_, ok := errors.AsType[StartError](err)
	return ok
}

// begin records that a step has begun. It returns false if the step is already under way.
func (m *State) begin(s Step, now time.Time) bool {
	if _, ok := m.running[s]; ok {
		return false
	}
	if m.running == nil {
		m.running = make(map[Step]struct{}, 1)
	}
	m.running[s] = struct{}{}
	switch s := s.(type) {
	case PreStop:
		m.instance(s.ID).hookBegan = now
	case Signal:
		m.instance(s.ID).signaled = now
	case Kill:
		m.instance(s.ID).killed = now
	case Probe:
		m.instance(s.ID).probes[s.Kind].last = now
	case GiveUp:
		if m.givenUp == nil {
			m.givenUp = map[string]struct{}{}
		}
		m.givenUp[s.Container] = struct{}{}
	case CreateSandbox, StopSandbox, RemoveSandbox, Start, Remove, Resize, Delete:
	}
	return true
}

// Finished records the result of a step that Decide returned. The error of a Probe means that the
// container is unhealthy, unless it is an UndecidedError.
func (m *State) Finished(s Step, err error, now time.Time) {
	delete(m.running, s)
	switch s := s.(type) {
	case Start:
		delete(m.givenUp, s.Container)
		m.tried(s.Container, err, now)
		if f := m.failed[s.Container]; f != nil {
			f.image = s.Image
		}
	case CreateSandbox:
		m.tried(sandbox, err, now)
		if f := m.failed[sandbox]; f != nil && !isStartError(err) {
			f.reason = "CreatePodSandboxError"
		}
	case PreStop:
		m.instance(s.ID).hookEnded = true // TERM follows even if the hook failed
	case Signal:
		if err != nil {
			m.instance(s.ID).signaled = time.Time{}
		}
		m.tried(s.ID, err, now)
	case Probe:
		if _, undecided := errors.AsType[UndecidedError](err); !undecided {
			m.instance(s.ID).probes[s.Kind].count(err)
		}
	case Remove:
		delete(m.instances, s.ID)
		m.tried(s.ID, err, now)
	case Kill:
		m.tried(s.ID, err, now)
	case Resize:
		m.tried(s.ID, err, now)
	case StopSandbox:
		if err == nil {
			m.stopped = s.ID
		}
		m.tried(s.ID, err, now)
	case RemoveSandbox:
		m.tried(s.ID, err, now)
	case GiveUp:
	case Delete:
		m.removed = err == nil
		if err == nil {
			err = errThere // the watch lags behind, or there is a finalizer: an immediate retry would change neither
		}
		m.tried(removal, err, now)
	}
}

func (p *probing) count(err error) {
	if err == nil {
		p.successes, p.failures = p.successes+1, 0
		return
	}
	p.successes, p.failures = 0, p.failures+1
}

func (m *State) tried(what string, err error, now time.Time) {
	if err == nil {
		delete(m.failed, what)
		return
	}
	if m.failed == nil {
		m.failed = map[string]*failure{}
	}
	f := m.failed[what]
	if f == nil {
		f = &failure{}
		m.failed[what] = f
	}
	f.at, f.count, f.reason, f.message = now, f.count+1, "CreateContainerError", err.Error()
	if known, ok := errors.AsType[StartError](err); ok {
		f.reason = known.Reason
	}
}

// retryAt returns the time to retry a failed step, or zero if it has not failed. The delay grows
// for requests to a registry and to the API server. Other steps, for example steps that lack a
// ConfigMap, are repeated at a constant interval.
func (m *State) retryAt(what string) time.Time {
	f := m.failed[what]
	if f == nil {
		return time.Time{}
	}
	if f.reason != errImagePull && what != removal {
		return f.at.Add(firstBackoff)
	}
	return f.at.Add(min(firstBackoff<<min(f.count-1, maxDoublings), longestBackoff))
}

func (m *State) instance(id string) *instanceState {
	t := m.instances[id]
	if t == nil {
		if m.instances == nil {
			m.instances = make(map[string]*instanceState, 1)
		}
		t = &instanceState{}
		m.instances[id] = t
	}
	return t
}

// peek returns a copy of the state of an instance.
func (m *State) peek(id string) instanceState {
	if t := m.instances[id]; t != nil {
		return *t
	}
	return instanceState{}
}

// starting reports whether the start of an instance of a container is under way.
func (m *State) starting(container string) bool {
	for s := range m.running {
		if start, ok := s.(Start); ok && start.Container == container {
			return true
		}
	}
	return false
}

// startingWith reports whether the start of an instance with an image is under way.
func (m *State) startingWith(container, image string) bool {
	for s := range m.running {
		if start, ok := s.(Start); ok && start.Container == container && start.Image == image {
			return true
		}
	}
	return false
}

// pulls reports whether the start of a container is under way, and has not been given up.
func (m *State) pulls(container string) bool {
	_, givenUp := m.givenUp[container]
	return !givenUp && m.starting(container)
}

// underWay reports whether a step has begun and not finished.
func (m *State) underWay(s Step) bool {
	_, ok := m.running[s]
	return ok
}
