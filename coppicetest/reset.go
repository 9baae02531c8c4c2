package coppicetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/coppicetest/leaks"
)

// resetPath is the path at which the server goes back to a former state.
const resetPath = "/coppice/v1/reset"

// Reset leads the control plane back to the state of its start, or of the last Keep. Objects that were made since go at
// once, whatever their finalizers, and whoever watches them sees them go; objects that were changed or deleted are as
// they were. When it returns, all caches show that, the plane is at rest, and no controller of the plane acts on
// anything that was before. It includes Mark.
//
// Stop the operator of the test before: if it goes on writing, the test fails after 30 seconds. Simulated nodes, and the
// faults of a plan, stay; the draws of the faults begin anew.
func (p *Plane) Reset(t testing.TB) {
	t.Helper()
	if err := p.reset(t.Context()); err != nil {
		t.Fatalf("reset: %v", err)
	}
}

// Keep makes the present state the one to which Reset leads back: a suite installs definitions, policies and namespaces,
// and calls it once. It includes Mark. A plane of Shared ends with the test then: no other test gets it.
func (p *Plane) Keep(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	p.isChanged = true
	p.mu.Unlock()
	if err := p.keep(t.Context()); err != nil {
		t.Fatalf("keep: %v", err)
	}
}

func (p *Plane) keep(ctx context.Context) error {
	if err := p.api.do(ctx, request{method: http.MethodPut, path: resetPath}, nil); err != nil || p.bare {
		return err
	}
	if err := p.mark(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = p.since.before
	return nil
}

func (p *Plane) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settlePatience+requestTimeout)
	defer cancel()
	var done struct{ Time time.Time } // by the clock of the server, which writes the records
	if err := p.api.do(ctx, request{method: http.MethodPost, path: resetPath}, &done); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.seen = mark{time: done.Time, before: p.kept}, map[string]leaks.Object{}
	return nil
}

// pools has the idle planes that Shared lends, by their options.
//
//nolint:gochecknoglobals // the tests of a package share nothing else
var pools = struct {
	sync.Mutex

	idle map[string][]*Plane // guarded
}{idle: map[string][]*Plane{}}

// Shared lends a control plane to a test, and takes it back at the test's end. It is as new: Reset has removed what
// earlier tests have left. Tests that run in parallel have one each, so there are at most as many as go test runs tests
// at the same time (-parallel). Planes with the same options are lent again, which takes milliseconds where Start takes
// half a second; all of them end with the process. One whose test has called Keep is not lent again.
func Shared(t testing.TB, options ...Option) *Plane {
	t.Helper()
	var s settings
	for _, set := range options {
		set(&s)
	}
	key := s.key()
	p := lent(key)
	if p == nil {
		var err error
		if p, err = Open(t.Context(), options...); err != nil {
			t.Fatalf("start a control plane: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() && !p.bare {
			p.explain(t)
		}
		if err := p.takeBack(context.WithoutCancel(t.Context()), key); err != nil {
			t.Logf("the control plane is not lent again: %v", err)
		}
	})
	return p
}

// key returns the same text for options whose planes are interchangeable.
func (s settings) key() string {
	definitions := make([]string, 0, len(s.definitions))
	for _, d := range s.definitions {
		definitions = append(definitions, fmt.Sprintf("%s %q", d.path, d.data))
	}
	return fmt.Sprintf("%s %q %q", s.binary, s.command(), strings.Join(definitions, " "))
}

// lent returns an idle plane that still runs; nil if there is none.
func lent(key string) *Plane {
	pools.Lock()
	defer pools.Unlock()
	for idle := pools.idle[key]; len(idle) > 0; idle = pools.idle[key] {
		last := idle[len(idle)-1]
		pools.idle[key] = idle[:len(idle)-1]
		if last.runs() {
			return last
		}
	}
	return nil
}

// runs reports whether the process of a plane runs, and nobody has closed the plane.
func (p *Plane) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.process.exited:
		return false
	default:
		return !p.closed
	}
}

// takeBack resets a plane and makes it idle. If that fails, or the state to which Reset leads is not that of the start, it
// closes the plane.
func (p *Plane) takeBack(ctx context.Context, key string) error {
	p.mu.Lock()
	isChanged := p.isChanged
	p.mu.Unlock()
	err := p.endFaults(ctx) // a request that a fault holds would delay Close, too
	if err == nil && !isChanged {
		err = p.reset(ctx)
	}
	if err != nil || isChanged {
		return errors.Join(err, p.Close())
	}
	pools.Lock()
	defer pools.Unlock()
	pools.idle[key] = append(pools.idle[key], p)
	return nil
}
