package lifecycle

import (
	"errors"
	"time"
)

// State is what an agent remembers of a pod between two decisions. The zero value is that
// of a pod that has just been seen. It is not safe for concurrent use.
type State struct {
	removed   bool                      // the API has taken the removal
	ending    time.Time                 // when its end began, for whatever reason
	leaving   time.Time                 // when it was seen to be deleted
	running   map[Step]struct{}         // steps that were begun and have not finished
	instances map[string]*instanceState // by id
	failed    map[string]*failure       // by container; by id of what could not be ended or removed
}

// What else can fail, in State.failed. No container has such a name.
const (
	sandbox = "(sandbox)"
	removal = "(removal)"
)

// errThere means that a pod is still in the API after it was removed.
var errThere = errors.New("the pod is still there")

// instanceState is what is remembered of one instance.
type instanceState struct {
	stopping  time.Time     // when it was decided to end this instance alone
	grace     time.Duration // what it was given then
	hookBegan time.Time
	hookEnded bool
	signaled  time.Time
	killed    time.Time
	probes    [probeKinds]probing
}

// probing is what is remembered of one probe.
type probing struct {
	last      time.Time // when it was begun
	outcome   outcome
	successes int32 // in a row
	failures  int32 // in a row
}

// outcome is what a probe says, thresholds considered.
type outcome int

const (
	undecided outcome = iota
	passing
	failing
)

// failure is what is remembered of attempts that failed.
type failure struct {
	at      time.Time
	count   int
	reason  string
	message string
}

// StartError is the error of starting a container or a sandbox, with the reason that the
// status of the pod gets.
type StartError struct {
	Reason string // such as ErrImagePull
	Err    error
}

// Error implements error.
func (e StartError) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e StartError) Unwrap() error { return e.Err }

// ErrUndecided is the result of a probe that could not be carried out: it says nothing about the container.
var ErrUndecided = errors.New("probe undecided")

func isStartError(err error) bool {
	_, ok := errors.AsType[StartError](err)
	return ok
}

// begin notes that a step is begun, and reports whether it was not under way already.
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
	case CreateSandbox, RemoveSandbox, Start, Remove, Delete:
	}
	return true
}

// Finished notes how a step that Decide returned has ended. The error of a Probe tells
// that the container is not well.
func (m *State) Finished(s Step, err error, now time.Time) {
	delete(m.running, s)
	switch s := s.(type) {
	case Start:
		m.tried(s.Container, err, now)
	case CreateSandbox:
		m.tried(sandbox, err, now)
		if f := m.failed[sandbox]; f != nil && !isStartError(err) {
			f.reason = "CreatePodSandboxError"
		}
	case PreStop:
		m.instance(s.ID).hookEnded = true // failed or not: TERM is next
	case Signal:
		if err != nil {
			m.instance(s.ID).signaled = time.Time{}
		}
		m.tried(s.ID, err, now)
	case Probe:
		if !errors.Is(err, ErrUndecided) {
			m.instance(s.ID).probes[s.Kind].count(err)
		}
	case Remove:
		delete(m.instances, s.ID)
		m.tried(s.ID, err, now)
	case Kill:
		m.tried(s.ID, err, now)
	case RemoveSandbox:
		m.tried(s.ID, err, now)
	case Delete:
		m.removed = err == nil
		if err == nil {
			err = errThere // no news of it yet, or a finalizer: asking again at once changes neither
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

// retryAt returns when to try again what has failed; zero if it has not.
func (m *State) retryAt(what string) time.Time {
	f := m.failed[what]
	if f == nil {
		return time.Time{}
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

// peek returns what is remembered of an instance, to be read only.
func (m *State) peek(id string) instanceState {
	if t := m.instances[id]; t != nil {
		return *t
	}
	return instanceState{}
}

// starting reports whether an instance of a container may be about to appear.
func (m *State) starting(container string) bool {
	for s := range m.running {
		if start, ok := s.(Start); ok && start.Container == container {
			return true
		}
	}
	return false
}

// underWay reports whether a step is begun and not finished.
func (m *State) underWay(s Step) bool {
	_, ok := m.running[s]
	return ok
}
