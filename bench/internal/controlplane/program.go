package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is the time that a process has to end after an interrupt.
const stopTimeout = time.Minute

// program is a process whose standard output is read line by line.
type program struct {
	cmd    *exec.Cmd
	lines  chan string
	stderr bytes.Buffer
	ended  chan struct{} // closed when the process has ended, after err is set
	err    error
}

func startProgram(path string, args ...string) (*program, error) {
	p := &program{cmd: exec.Command(path, args...), lines: make(chan string, 100), ended: make(chan struct{})}
	// A process group of its own: Ctrl-C on the terminal does not reach it, so that it is stopped
	// gracefully.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(stdout)
	return p, nil
}

// follow reads the output until it ends; it drops lines when the channel is full.
func (p *program) follow(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		select {
		case p.lines <- lines.Text():
		default:
		}
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// awaitLine waits for a line of output with that prefix.
func (p *program) awaitLine(ctx context.Context, beginning string) error {
	for {
		select {
		case line := <-p.lines:
			if strings.HasPrefix(line, beginning) {
				return nil
			}
		case <-p.ended:
			return fmt.Errorf("%s ended: %w: %s", p.cmd.Path, p.err, p.stderr.String())
		case <-ctx.Done():
			return fmt.Errorf("%s did not print a line that begins with %q: %w", p.cmd.Path, beginning, ctx.Err())
		}
	}
}

// running reports whether the process has not ended.
func (p *program) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stop interrupts the process and waits for its end.
func (p *program) stop() error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.ended:
	case <-timeout.C:
		_ = p.cmd.Process.Kill() // the error reports the kill
		<-p.ended
		return fmt.Errorf("%s did not stop within %s", p.cmd.Path, stopTimeout)
	}
	if p.err != nil {
		return fmt.Errorf("%s ended: %w: %s", p.cmd.Path, p.err, p.stderr.String())
	}
	return nil
}
