package coppicetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	// startPatience bounds the time until a process is ready. On an idle machine it takes half a
	// second.
	startPatience = 2 * time.Minute
	// stopPatience is the time that a process has to stop before it is killed.
	stopPatience = 20 * time.Second
)

// process is a running coppice.
type process struct {
	command *exec.Cmd
	input   io.Closer // the process ends when this is closed, or when the test's process ends
	log     transcript
	exited  chan struct{} // closed when it has ended
	err     error         // how, once exited is closed
}

// startProcess runs the binary and passes each line that it prints to ready, until that reports
// true.
func startProcess(binary string, args []string, ready func(line string) bool) (*process, error) {
	command := exec.Command(binary, append(args, "--stop-with-stdin")...)
	command.Args[0] = binaryName
	p := &process{command: command, exited: make(chan struct{})}
	command.Stderr = &p.log
	input, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	p.input = input
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	isReady := make(chan struct{})
	go p.read(output, isReady, ready)
	timeout := time.NewTimer(startPatience)
	defer timeout.Stop()
	select {
	case <-isReady:
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", p, exitError(p.err), p.log.String())
	case <-timeout.C:
		return nil, errors.Join(fmt.Errorf("%s is not ready after %s\n%s", p, startPatience, p.log.String()), p.stop())
	}
}

// exitError returns the error for a process that ended too early.
func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

func (p *process) read(output io.Reader, isReady chan<- struct{}, ready func(string) bool) {
	reported := false
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if !reported && ready(lines.Text()) {
			reported = true
			close(isReady)
		}
	}
	_, _ = io.Copy(io.Discard, output) // the rest of a line that is too long
	p.err = p.command.Wait()
	close(p.exited)
}

// stop ends the process and waits until it has cleaned up.
func (p *process) stop() error {
	_ = p.input.Close() // an error means that it has ended
	timeout := time.NewTimer(stopPatience)
	defer timeout.Stop()
	select {
	case <-p.exited:
	case <-timeout.C:
		_ = p.command.Process.Kill() // an error means that it has ended
		<-p.exited
		return fmt.Errorf("%s did not stop within %s, and was killed\n%s", p, stopPatience, p.log.String())
	}
	if p.err != nil {
		return fmt.Errorf("%s did not stop cleanly: %w\n%s", p, p.err, p.log.String())
	}
	return nil
}

// String returns the command line.
func (p *process) String() string { return strings.Join(p.command.Args, " ") }

// transcript collects the output of a process.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String implements fmt.Stringer.
func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// readFile returns the contents of a file, or the error in words.
func readFile(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
