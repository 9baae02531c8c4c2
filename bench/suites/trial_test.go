package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRun: what stays of a run is counted, and ended; a test that fails at first has another attempt.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "suite.test")
	// It leaves a file, and a process whose parent has ended. It fails the first time.
	text := `#!/bin/sh
touch "$TMPDIR/left" "$ALSO"
(sleep 600 >/dev/null 2>&1 &)
printf '\026=== RUN   TestA\n'
if [ -e again ]; then printf '\026--- PASS: TestA (0.00s)\n'; else touch again; printf '\026--- FAIL: TestA (0.00s)\n'; fi
`
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	also := filepath.Join(dir, "also")
	got, err := trial{p: &testPackage{path: "p", dir: dir, binary: script}, environment: []string{"ALSO=" + also}, log: filepath.Join(dir, "log"), timeout: time.Minute}.run(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if got.tests["p: TestA"] != passed || got.again != 1 || got.processes != 1 || got.files != 1 {
		t.Errorf("got %+v; want TestA to pass the second time, and one process and one file to stay", got)
	}
	if _, err := os.Stat(also); err != nil {
		t.Errorf("the suite's own variable is not set: %v", err)
	}
}

// TestProcessesAreFoundByTheirEnvironment: processes are found by their environment, and only by the whole of the variable.
func TestProcessesAreFoundByTheirEnvironment(t *testing.T) {
	mark := marker + "=" + t.TempDir()
	command := exec.CommandContext(t.Context(), "sleep", "600")
	command.Env = []string{mark}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	found, err := marked(mark)
	if err != nil || len(found) != 1 || found[0].PID != command.Process.Pid {
		t.Errorf("found %v, %v; want process %d", found, err, command.Process.Pid)
	}
	if found, err := marked(mark[:len(mark)-1]); err != nil || len(found) != 0 {
		t.Errorf("by a part of it: found %v, %v", found, err)
	}
	if n, err := endProcesses(mark); err != nil || n != 1 {
		t.Errorf("ended %d, %v; want 1", n, err)
	}
	if err := command.Wait(); err == nil {
		t.Error("the process has ended by itself")
	}
}
