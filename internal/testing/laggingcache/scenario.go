package laggingcache

import (
	"time"

	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// Scenario is what happens around the controllers of a cluster, and what must hold.
type Scenario interface {
	// Disturb does something that a user does, or an accident.
	Disturb()
	// Live lets the kubelet of one pod in that many do something, and whatever else works
	// by itself. It reports whether any did.
	Live(many int) bool
	// Observe is called after everything that happens. It returns which rule has been broken
	// until now, or "".
	Observe() string
	// AtRest returns what is not as it ought to be when nothing happens any more, or "".
	AtRest() string
}

// Play lets users, nodes, caches and controllers do what they do, in any order and with
// requests that fail, and then lets everything come to rest.
func (c *Cluster) Play(t *rapid.T, s Scenario) {
	if c.choose(3) == 2 {
		c.Fate = Unlucky(rapid.Uint64().Draw(t, "fate"), 20)
	}
	c.Adverse = c.choose(2) == 1
	check := func(t *rapid.T) {
		if broken := s.Observe(); broken != "" || len(c.Errors) > 0 {
			t.Fatalf("broken: %q; errors: %v", broken, c.Errors)
		}
	}
	t.Repeat(histories.Actions(check, map[string]histories.Action{
		"controllers": {Weight: 80, Do: func(t *rapid.T) { c.Step(t.Context()) }},
		"disturbance": {Weight: 2, Do: func(*rapid.T) { s.Disturb() }},
		"kubelets":    {Weight: 13, Do: func(*rapid.T) { s.Live(2) }},
		"time":        {Weight: 5, Do: func(*rapid.T) { c.Wait(3 * time.Second) }},
	}))
	c.Fate = nil
	if !c.settle(t, s, check) {
		t.Fatalf("it does not come to rest: %s", s.AtRest())
	}
	if wrong := s.AtRest(); wrong != "" {
		t.Fatalf("at rest: %s", wrong)
	}
}

// settle lets everything come to rest: there is nothing to do, nor will be as time passes. It
// is false if that does not end.
func (c *Cluster) settle(t *rapid.T, s Scenario, check func(*rapid.T)) bool {
	for range 500 {
		if !c.Quiesce(t.Context()) {
			return false
		}
		check(t)
		if !s.Live(1) && !c.Wait(time.Hour) {
			return true
		}
		check(t)
	}
	return false
}
