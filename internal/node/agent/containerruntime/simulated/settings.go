package simulated

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Prefix is the prefix of the pod annotations that determine how containers behave. An annotation
// applies to all containers of the pod or, if ".container" is appended to its name, to that
// container.
const Prefix = "simulated.coppice.dev/"

// The annotations. Durations are in Go's format, such as 1.5s.
const (
	startAfter = "start-after"      // how long a container takes to be created
	readyAfter = "ready-after"      // how long it is not ready after its start
	exitAfter  = "exit-after"       // how long after its start it exits of its own accord
	exitCode   = "exit-code"        // the exit code of that exit
	exitReason = "exit-reason"      // the reason of that exit, such as OOMKilled
	ignoreTerm = "ignore-term"      // "true": TERM has no effect
	termTakes  = "term-takes"       // how long it takes to exit after TERM
	termCode   = "term-exit-code"   // the exit code after TERM
	hookTakes  = "pre-stop-takes"   // how long a preStop hook takes unless it is a sleep
	failPull   = "fail-pull"        // "true": the image does not exist
	failProbe  = "fail-%s-after"    // startup, readiness, liveness: the probe fails from that long after the start on
	readyProbe = "fail-%s-until"    // and until that long after the start
	useRestart = "exit-after-times" // how many times it exits of its own accord before it keeps running
)

// settings determine how a container behaves.
type settings struct {
	startAfter, readyAfter, exitAfter, termTakes, hookTakes time.Duration
	exits                                                   bool
	exitTimes                                               int64 // unlimited if negative
	exitCode, termCode                                      int32
	exitReason                                              string
	ignoreTerm, failPull                                    bool
}

// mostQuoted is the number of bytes of an invalid value that an error quotes.
const mostQuoted = 100

// annotations reads the annotations of a pod that apply to one container.
type annotations struct {
	pod       *corev1.Pod
	container string
	err       error // the first error
}

// settingsOf returns the settings of a container, or an error if its annotations are invalid.
func settingsOf(pod *corev1.Pod, container string) (settings, error) {
	if len(pod.Annotations) == 0 {
		return settings{exitTimes: -1}, nil
	}
	a := &annotations{pod: pod, container: container}
	_, exits := a.text(exitAfter)
	s := settings{
		startAfter: a.duration(startAfter), readyAfter: a.duration(readyAfter), exitAfter: a.duration(exitAfter),
		termTakes: a.duration(termTakes), hookTakes: a.duration(hookTakes), exits: exits,
		exitCode: int32(a.number(exitCode, 0, 255)), termCode: int32(a.number(termCode, 0, 255)), exitTimes: -1,
		ignoreTerm: a.holds(ignoreTerm), failPull: a.holds(failPull),
	}
	s.exitReason, _ = a.text(exitReason)
	if _, limited := a.text(useRestart); limited {
		s.exitTimes = a.number(useRestart, 0, 1<<31-1)
	}
	return s, a.err
}

// probeFails reports whether a probe fails once the container has run for that long.
func probeFails(pod *corev1.Pod, container, probe string, ran time.Duration) (bool, error) {
	if len(pod.Annotations) == 0 {
		return false, nil
	}
	a := &annotations{pod: pod, container: container}
	after, until := fmt.Sprintf(failProbe, probe), fmt.Sprintf(readyProbe, probe)
	_, fails := a.text(after)
	failed := fails && ran >= a.duration(after) || ran < a.duration(until)
	if probe == "readiness" {
		failed = failed || ran < a.duration(readyAfter)
	}
	return failed, a.err
}

func (a *annotations) text(name string) (string, bool) {
	if value, ok := a.pod.Annotations[Prefix+name+"."+a.container]; ok {
		return value, true
	}
	value, ok := a.pod.Annotations[Prefix+name]
	return value, ok
}

func (a *annotations) duration(name string) time.Duration {
	value, ok := a.text(name)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		a.mistake(name, value, "a duration such as 1.5s")
		return 0
	}
	return d
}

func (a *annotations) number(name string, least, most int64) int64 {
	value, ok := a.text(name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least || n > most {
		a.mistake(name, value, fmt.Sprintf("a number from %d to %d", least, most))
		return 0
	}
	return n
}

func (a *annotations) holds(name string) bool {
	value, ok := a.text(name)
	if !ok {
		return false
	}
	holds, err := strconv.ParseBool(value)
	if err != nil {
		a.mistake(name, value, "true or false")
	}
	return holds
}

func (a *annotations) mistake(name, value, want string) {
	if a.err == nil {
		// The text is kept in memory, with each failed probe: a value may have 256 kB.
		a.err = fmt.Errorf("annotation %s%s of container %s is %q, and not %s", Prefix, name, a.container, ownership.Excerpt(value, mostQuoted), want)
	}
}
