package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTryTakesSettingsFromTheArgument: the caller's environment does not reach the assets.
func TestTryTakesSettingsFromTheArgument(t *testing.T) {
	t.Setenv(controllersVariable, "gc")
	t.Setenv(faultsVariable, "harsh")
	dir := t.TempDir()
	script := filepath.Join(dir, "suite.test")
	text := `#!/bin/sh
printf '\026=== RUN   TestA\n\026--- PASS: TestA (0.00s)\n'
printf '%s %s' "$` + controllersVariable + `" "$` + faultsVariable + `" >seen
`
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	c := config{logs: dir, attempts: 1, timeout: time.Minute}
	s := compiledSuite{name: "s", packages: []testPackage{{path: "p", dir: dir, binary: script}}}
	for want, set := range map[string]setting{" ": {}, "namespace ": {controllersVariable, "namespace"}, " mild": {faultsVariable, "mild"}} {
		if _, err := c.try(t.Context(), s, 0, on{dir, "label", set}); err != nil {
			t.Fatal(err)
		}
		if seen, err := os.ReadFile(filepath.Join(dir, "seen")); err != nil || string(seen) != want {
			t.Errorf("the suite has %q, %v; want %q", seen, err, want)
		}
	}
}

func TestPrintOutcomes(t *testing.T) {
	var out strings.Builder
	printOutcomes(&out, "p", setting{controllersVariable, "namespace"}, measured{tests: outcomes{"p: a": passed, "p: b": failed, "p: c": skipped, "p: d": passed}, again: 1})
	const want = "p, COPPICE_CONTROLLERS=namespace: 2 of 3 tests pass, 1 of them when they are run again\n  fails: b\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
