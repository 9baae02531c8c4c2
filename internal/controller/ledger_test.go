package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

type fixedView string

func (v *fixedView) LastStoreSyncResourceVersion() string { return string(*v) }

func TestR25_LedgerOfCreations(t *testing.T) {
	view := fixedView("")
	l := NewLedger(&view)
	if l.Behind("a") {
		t.Error("nothing was created")
	}
	l.Created("a", "9")
	l.Created("a", "100")
	l.Created("a", "20")
	l.Created("b", "5")
	for at, behind := range map[fixedView]bool{"": true, "9": true, "99": true} {
		if view = at; l.Behind("a") != behind {
			t.Errorf("at %q behind: %t", at, !behind)
		}
	}
	view = "100"
	if l.Behind("a") || l.Behind("b") {
		t.Error("the cache has come far enough")
	}
	if len(l.owners) > 0 {
		t.Errorf("%d owners are kept for nothing", len(l.owners))
	}
	// A cache that begins anew at an older state, as after a restore, does not bring back
	// what was settled.
	view = "50"
	if l.Behind("a") {
		t.Error("what was seen counts as not seen")
	}
}

// A server whose versions have no order does not stop its controllers.
func TestR25_LedgerOfVersionsWithoutOrder(t *testing.T) {
	view := fixedView("abc")
	l := NewLedger(&view)
	l.Created("a", "def")
	if l.Behind("a") {
		t.Error("it waits for what it cannot compare")
	}
}

func TestR25_LedgerOfDeletions(t *testing.T) {
	view := fixedView("1")
	l := NewLedger(&view)
	for _, pod := range []types.UID{"stays", "terminates", "goes"} {
		l.Deleted("a", pod)
	}
	leaving := l.Leaving("a", map[types.UID]bool{"stays": false, "terminates": true, "other": false})
	if len(leaving) != 1 || !leaving["stays"] {
		t.Errorf("%v", leaving)
	}
	if leaving := l.Leaving("a", nil); len(leaving) != 0 || len(l.owners) > 0 {
		t.Errorf("%v, %d owners", leaving, len(l.owners))
	}
	l.Deleted("a", "x")
	if l.Forget("a"); len(l.owners) > 0 {
		t.Error("a forgotten owner is kept")
	}
}
