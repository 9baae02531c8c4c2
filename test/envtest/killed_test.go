package envtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// victimVariable makes the test binary a process that starts a control plane, and waits to be killed.
const victimVariable = "COPPICE_ENVTEST_VICTIM"

// webhookDirPrefix begins the name of the directory in which envtest keeps the certificate of a suite's
// own webhooks. The control plane does not know the directory.
const webhookDirPrefix = "envtest-serving-certs-"

func victim() int {
	if _, err := (&envtest.Environment{}).Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The environment is not stopped, as in a test without a handler for Ctrl-C. This process sets one
	// because a background process may ignore Ctrl-C by default.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	fmt.Println("started")
	<-interrupted
	return 1
}

// However a test process ends, nothing stays of the control plane that it has started.
func TestKilledSuiteLeavesNothing(t *testing.T) {
	needProcesses(t)
	for i := range *kills {
		t.Run(fmt.Sprint(i), func(t *testing.T) { kill(t, os.Kill) })
	}
	t.Run("Ctrl-C", func(t *testing.T) { kill(t, os.Interrupt) })
}

func needProcesses(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("there is no /proc to find processes in")
	}
}

func kill(t *testing.T, by os.Signal) {
	t.Helper()
	temporary := t.TempDir()
	process, stdout := startVictim(t, temporary)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "started" {
		_ = process.Process.Kill()
		t.Fatalf("it says %q, %v: %v", line, err, process.Wait())
	}
	if len(processesOf(t, temporary)) != 2 {
		t.Errorf("it runs %q, want an etcd and a kube-apiserver", processesOf(t, temporary))
	}
	if err := process.Process.Signal(by); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	eventually(t, "something is left", func(context.Context) (bool, error) {
		left := append(processesOf(t, temporary), filesBelow(temporary)...)
		if len(left) > 0 {
			return false, fmt.Errorf("%s", strings.Join(left, "; "))
		}
		return true, nil
	})
}

// A test process may also be killed when it has only just started a process, which could not look for
// its parent yet. No process stays then, either.
func TestKilledAtTheStart(t *testing.T) {
	needProcesses(t)
	for i := range *kills {
		for _, name := range []string{"etcd", "kube-apiserver"} {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				temporary := t.TempDir()
				process, _ := startVictim(t, temporary)
				for !slices.ContainsFunc(processesOf(t, temporary), func(line string) bool { return strings.Contains(line, "/"+name+" ") }) {
					runtime.Gosched()
				}
				if err := process.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = process.Wait()
				eventually(t, "a process is left", func(context.Context) (bool, error) {
					if left := processesOf(t, temporary); len(left) > 0 {
						return false, fmt.Errorf("%s", strings.Join(left, "; "))
					}
					return true, nil
				})
			})
		}
	}
}

// startVictim starts a process that starts a control plane, with temporary files in a directory of its
// own. It has its own session, too, as in a terminal: the process that adopts its children is then
// always outside of it.
func startVictim(t *testing.T, temporary string) (*exec.Cmd, io.Reader) {
	t.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), victimVariable+"=1", "TMPDIR="+temporary)
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	process.Stderr = os.Stderr
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	return process, stdout
}

// filesBelow returns the files in a directory, except the files of webhooks.
func filesBelow(dir string) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), webhookDirPrefix) {
			return filepath.SkipDir
		}
		if path != dir && !os.IsNotExist(err) { // it may be removed meanwhile
			found = append(found, path)
		}
		return nil
	})
	return found
}

// processesOf returns the command lines of the processes that have a directory in their flags.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), dir) { // a process may end meanwhile
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
