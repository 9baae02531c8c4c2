// Package controlplane builds coppice and runs it as a process, for end-to-end tests.
//
// A test binary builds once ([Build]) and starts as many processes as its tests need ([Start]):
// control planes, and nodes in processes of their own. Start returns when the process is ready.
package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// Build builds coppice from the module's root into dir, and returns the path of the binary. The
// binary is stamped with a version like a release, because kubectl complains about a server
// without one.
func Build(root, dir string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(dir, "coppice"))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-ldflags", "-s -X k8s.io/component-base/version.gitVersion="+version.Kubernetes(), "-o", binary, "./cmd/coppice")
	build.Dir = root // with cgo or without it, as the tests: otherwise everything is compiled twice
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build coppice: %w\n%s", err, out)
	}
	return binary, nil
}

// Process is a running coppice: a control plane, or the agent of a node.
type Process struct {
	// Kubeconfig is the path that a control plane has printed.
	Kubeconfig string
	// Server is the address that a control plane serves on.
	Server string

	command *exec.Cmd
	log     transcript.Transcript
	killed  bool          // set by Kill: the exit status is then not an error
	exited  chan struct{} // closed when the process has ended
	err     error         // of the process, once exited is closed
}

// Start runs binary with args, and waits until it is ready.
func Start(binary string, args ...string) (*Process, error) {
	p := &Process{command: exec.Command(binary, args...), exited: make(chan struct{})}
	p.command.Stderr = &p.log
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	isReady := make(chan struct{})
	go p.read(stdout, isReady)
	select {
	case <-isReady:
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("%s ended before it was ready: %w: %s", p, cause(p.err), p.Log())
	case <-time.After(eventually.Patience):
		err := fmt.Errorf("%s is not ready after %s: %s", p, eventually.Patience, p.Log())
		return nil, errors.Join(err, p.Kill())
	}
}

// cause returns the reason why a process ended unexpectedly.
func cause(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// unquoted returns a word that coppice up quotes for a shell if it has other characters than most paths.
func unquoted(word string) string {
	inner, ok := strings.CutPrefix(word, "'")
	if !ok {
		return word
	}
	return strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `'\''`, "'")
}

// read reads the output of the process until the process ends.
func (p *Process) read(stdout io.Reader, isReady chan<- struct{}) {
	said := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if path, ok := strings.CutPrefix(lines.Text(), "export KUBECONFIG="); ok {
			p.Kubeconfig = unquoted(path)
		}
		if rest, ok := strings.CutPrefix(lines.Text(), "ready "); ok && !said {
			said = true
			p.Server, _, _ = strings.Cut(rest, " ")
			close(isReady)
		}
	}
	_, _ = io.Copy(io.Discard, stdout)
	p.err = p.command.Wait()
	close(p.exited)
}

// String returns the command line, without the path of the binary.
func (p *Process) String() string { return "coppice " + strings.Join(p.command.Args[1:], " ") }

// PID returns the ID of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Log returns the stderr of the process so far.
func (p *Process) Log() string { return p.log.String() }

// Stop interrupts the process, as Ctrl-C does, and waits until it has ended. It is an error if
// the process does not exit cleanly, but not if Stop or Kill has ended it before.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGINT); err != nil {
		return err
	}
	switch {
	case !p.ends():
		return errors.Join(fmt.Errorf("%s does not stop: %s", p, p.Log()), p.Kill())
	case p.err != nil && !p.killed:
		return fmt.Errorf("%s did not stop cleanly: %w: %s", p, p.err, p.Log())
	}
	return nil
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.ends() {
		return fmt.Errorf("%s was killed, and does not end", p)
	}
	p.killed = true
	return nil
}

// Signal sends a signal. It is not an error if the process has ended.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p, err)
	}
	return nil
}

// ends waits until the process has ended, and reports whether it did in time.
func (p *Process) ends() bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(eventually.Patience):
		return false
	}
}
