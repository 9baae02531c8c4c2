package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// fakeCache is a cache that is current up to that resourceVersion.
type fakeCache string

func (c *fakeCache) LastStoreSyncResourceVersion() string { return string(*c) }

func TestR25_ExpectedVersions(t *testing.T) {
	cache := fakeCache("")
	e := NewExpectations(&cache)
	if !e.Satisfied("a") {
		t.Error("nothing was created")
	}
	e.ExpectVersion("a", "9")
	e.ExpectVersion("a", "100")
	e.ExpectVersion("a", "20")
	e.ExpectVersion("b", "5")
	for _, at := range []fakeCache{"", "9", "99"} {
		if cache = at; e.Satisfied("a") {
			t.Errorf("satisfied at %q", at)
		}
	}
	cache = "100"
	if !e.Satisfied("a") || !e.Satisfied("b") {
		t.Error("the cache has come far enough")
	}
	if len(e.owners) > 0 {
		t.Errorf("%d owners are kept for nothing", len(e.owners))
	}
	// A cache that restarts at an older state, as after a restore, does not revive expectations
	// that were met.
	cache = "50"
	if !e.Satisfied("a") {
		t.Error("what was seen counts as not seen")
	}
}

// A server whose versions have no order does not block the controllers.
func TestR25_ExpectedVersionsWithoutOrder(t *testing.T) {
	cache := fakeCache("abc")
	e := NewExpectations(&cache)
	e.ExpectVersion("a", "def")
	if !e.Satisfied("a") {
		t.Error("it waits for what it cannot compare")
	}
}

func TestR25_ExpectedDeletions(t *testing.T) {
	cache := fakeCache("1")
	e := NewExpectations(&cache)
	for _, pod := range []types.UID{"stays", "terminates", "goes"} {
		e.ExpectDeletion("a", pod)
	}
	pending := e.PendingDeletions("a", map[types.UID]bool{"stays": false, "terminates": true, "other": false})
	if len(pending) != 1 || !pending["stays"] {
		t.Errorf("%v", pending)
	}
	if pending := e.PendingDeletions("a", nil); len(pending) != 0 || len(e.owners) > 0 {
		t.Errorf("%v, %d owners", pending, len(e.owners))
	}
	e.ExpectDeletion("a", "x")
	if e.Forget("a"); len(e.owners) > 0 {
		t.Error("a forgotten owner is kept")
	}
}
