package realserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is the time that a process has to end before it is killed.
const stopTimeout = 20 * time.Second

// process is a running program with its output in a file.
type process struct {
	name   Binary
	cmd    *exec.Cmd
	output string
	ended  chan struct{} // closed when the process has ended
}

// startProcess starts a program, which runs until stop is called.
func startProcess(dir string, binaries Binaries, name Binary, args ...string) (*process, error) {
	path, ok := binaries[name]
	if !ok {
		return nil, fmt.Errorf("start %s: it was not built", name)
	}
	command := exec.Command(path, args...)
	p := &process{name: name, cmd: command, output: filepath.Join(dir, string(name)+".log"), ended: make(chan struct{})}
	file, err := os.OpenFile(p.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer file.Close()
	p.cmd.Stdout, p.cmd.Stderr = file, file
	// A process group of its own: Ctrl-C on the terminal does not reach it, so that it is stopped
	// gracefully.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the reason is in its output
		close(p.ended)
	}()
	return p, nil
}

// running reports whether the process was started and has not ended.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stop ends the process, by its pid.
func (p *process) stop() error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timeout.C:
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.ended
	return nil
}

// until waits until check succeeds, the process ends, or ctx ends.
func (p *process) until(ctx context.Context, check func(ctx context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("%s has ended: %s", p.name, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; %s", p.name, err, p.tail())
		}
	}
}

// tail returns the last lines of the process's output.
func (p *process) tail() string {
	const lines = 10
	data, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
