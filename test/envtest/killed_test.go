package envtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// victimVariable makes the test binary a process that starts a control plane, and waits to be killed.
const victimVariable = "COPPICE_ENVTEST_VICTIM"

// webhookDirPrefix begins the name of the directory in which envtest keeps the certificate of a suite's
// own webhooks. The control plane is not told about it.
const webhookDirPrefix = "envtest-serving-certs-"

func victim() int {
	if _, err := (&envtest.Environment{}).Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("started")
	select {}
}

// However a test process ends, nothing stays of the control plane that it has started.
func TestKilled(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		t.Skip("there is no /proc to find processes in")
	}
	for i := range *kills {
		for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
			if signal != syscall.SIGKILL && i > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", i, signal), func(t *testing.T) { kill(t, signal) })
		}
	}
}

func kill(t *testing.T, signal syscall.Signal) {
	t.Helper()
	temporary := t.TempDir()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), victimVariable+"=1", "TMPDIR="+temporary)
	process.Stderr = os.Stderr
	stdout, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "started" {
		_ = process.Process.Kill()
		t.Fatalf("it says %q, %v: %v", line, err, process.Wait())
	}
	if len(processesOf(t, temporary)) != 2 {
		t.Errorf("it runs %q, want an etcd and a kube-apiserver", processesOf(t, temporary))
	}
	if err := process.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	eventually(t, "something is left", func(context.Context) (bool, error) {
		left := processesOf(t, temporary)
		err := filepath.WalkDir(temporary, func(path string, _ os.DirEntry, err error) error {
			if strings.HasPrefix(filepath.Base(path), webhookDirPrefix) {
				return filepath.SkipDir
			}
			if path != temporary && !os.IsNotExist(err) {
				left = append(left, path)
			}
			return nil
		})
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%s", strings.Join(left, "; "))
		}
		return err == nil, err
	})
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
