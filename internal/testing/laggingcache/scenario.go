package laggingcache

import (
	"time"

	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// Scenario describes the environment of a cluster's controllers and the rules that must hold.
type Scenario interface {
	// Disturb performs an action of a user, or an accident.
	Disturb()
	// Live lets the kubelet of one pod in many act, and all other automatic parts. It reports
	// whether any of them acted.
	Live(many int) bool
	// Observe is called after each step. It returns the rule that has been broken so far, or "".
	Observe() string
	// AtRest returns the rule that is broken when the cluster has come to rest, or "".
	AtRest() string
}

// Play lets users, nodes, caches and controllers act in any order, with requests that fail, and
// then lets everything come to rest.
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

// settle lets the cluster come to rest: no step is possible now or as time passes. It returns false
// if the cluster does not come to rest.
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
