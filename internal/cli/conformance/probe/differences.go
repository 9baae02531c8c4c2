package probe

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Side is a part of a cluster that may be upstream's. Sides are combined with |.
type Side uint8

const (
	// APIServer is the server, with its admission.
	APIServer Side = 1 << iota
	// Controllers are the garbage collector and the namespace controller.
	Controllers
)

// Difference is one of the differences from upstream that docs/semantics.md declares.
type Difference struct {
	Of Side
	// Rules are the codes of our rules that upstream breaks, separated by spaces.
	Rules string
	// Ours is the sentence about the difference in docs/semantics.md.
	Ours string
	// Upstream describes upstream's behaviour.
	Upstream string
}

// declarer is a T that records declared differences.
type declarer interface {
	Declare(d Difference, seen string)
}

// hurried bounds the time for a condition that upstream may never meet.
const hurried = 20 * time.Second

// Differs runs steps that upstream may fail. Where its differences are accepted, a failure of a step
// is declared, does not fail the check, and ends only the steps. Elsewhere a failure of a step fails
// the check.
func (w *Space) Differs(d Difference, steps func(w *Space)) {
	w.T.Helper()
	if w.Server.Upstream&d.Of == 0 {
		steps(w)
		return
	}
	trial := &attempt{T: w.T}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		steps(&Space{T: trial, Server: w.Server, Name: w.Name, made: w.made, hurry: min(hurried, w.patience())})
	}()
	<-ended
	seen := trial.seen()
	if seen == "" {
		return
	}
	if to, ok := w.T.(declarer); ok {
		to.Declare(d, seen)
		return
	}
	w.T.Logf("declared: %s: %s\n%s", d.Rules, d.Upstream, seen)
}

// Observed waits until upstream's collector has observed the existing objects, as it decides by the
// events of its watches (R15). With our collector, Observed does not wait.
func (w *Space) Observed(kinds ...Kind) {
	w.T.Helper()
	if w.Server.Upstream&Controllers != 0 {
		w.Settle(kinds...)
	}
}

// attempt is a T that keeps failures and does not report them.
type attempt struct {
	T

	mu       sync.Mutex
	failures []string // guarded
}

func (a *attempt) fail(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = append(a.failures, text)
}

func (a *attempt) seen() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.failures, "\n")
}

// Failed reports whether a step has failed.
func (a *attempt) Failed() bool { return a.seen() != "" || a.T.Failed() }

// Error keeps a failure.
func (a *attempt) Error(args ...any) { a.fail(fmt.Sprint(args...)) }

// Errorf keeps a failure.
func (a *attempt) Errorf(format string, args ...any) { a.fail(fmt.Sprintf(format, args...)) }

// Fatal keeps a failure and ends the steps.
func (a *attempt) Fatal(args ...any) {
	a.fail(fmt.Sprint(args...))
	runtime.Goexit()
}

// Fatalf keeps a failure and ends the steps.
func (a *attempt) Fatalf(format string, args ...any) {
	a.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
