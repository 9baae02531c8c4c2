package e2e

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// demo returns a command that runs coppice demo with a home and a temporary directory of its own.
func demo(t *testing.T, args ...string) (command *exec.Cmd, dir string, errs *bytes.Buffer) {
	t.Helper()
	dir, errs = t.TempDir(), &bytes.Buffer{}
	command = exec.Command(binary, append([]string{"demo"}, args...)...)
	command.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	command.Stderr = errs
	return command, dir, errs
}

// leavesNothing checks that everything a demo has written is removed with it.
func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

// TestDemoPlaysAllStories plays all stories, as a new user does.
func TestDemoPlaysAllStories(t *testing.T) {
	t.Parallel()
	command, dir, errs := demo(t, "--plain")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	for _, outcome := range []string{
		"deployment, replica set and pods are gone, the owner first",
		"the deployment waits for the replica set",
		"pods, replica set and deployment are gone, the owner last",
		"the deployment is gone, the replica set has no owner, and its pods run on",
		"the new deployment owns the old replica set, and no pod was replaced",
		"the stubborn pod was killed, exit code 137, and is gone",
		"the config map holds the namespace and the role; everything else is gone, the pods first",
		"config map, role and namespace are gone, in this order",
	} {
		if !strings.Contains(string(out), "\n✓ "+outcome+"\n") {
			t.Errorf("it does not say that %s", outcome)
		}
	}
	if !strings.HasSuffix(string(out), "\nEverything happened as announced. Stories played: 5.\n") || t.Failed() {
		t.Errorf("it says\n%s", out)
	}
	if strings.Contains(string(out), "\x1b") {
		t.Error("it colors what is no terminal")
	}
	leavesNothing(t, dir)
}

// TestDemoIsStopped by Ctrl-C in the middle of a story.
func TestDemoIsStopped(t *testing.T) {
	t.Parallel()
	command, dir, errs := demo(t, "--plain", "--story", "grace")
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
	defer watchdog.Stop()
	begun := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if !begun && strings.HasPrefix(lines.Text(), "✓ both are terminating") {
			begun = true
			if err := command.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasPrefix(lines.Text(), "Everything happened") {
			t.Error("it went on")
		}
	}
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); !begun || code != 1 || !strings.Contains(errs.String(), "coppice: the demo was stopped before its end\n") {
		t.Errorf("begun %t, exit code %d: %s", begun, code, errs)
	}
	leavesNothing(t, dir)
}
