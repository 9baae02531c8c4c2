package main

import "testing"

// TestCommandsThatWriteCatchSignals: Ctrl-C does not end a command in the middle of a write.
func TestCommandsThatWriteCatchSignals(t *testing.T) {
	for command, want := range map[string]bool{
		"undo": true, "delete": true, "preview": true, "protect": true, "unprotect": true, "audit": true, "snapshot": true, "graph": false, "version": false,
	} {
		if got := catchesSignals([]string{command, "--help"}); got != want {
			t.Errorf("%s: %t", command, got)
		}
	}
}
