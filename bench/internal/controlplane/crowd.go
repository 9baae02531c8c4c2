package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"

	"github.com/coppice-dev/coppice/bench/internal/credentials"
	"github.com/coppice-dev/coppice/bench/internal/crowd"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
	"github.com/coppice-dev/coppice/bench/realserver"
)

// Crowd is a synthetic API server in a process of its own.
type Crowd struct {
	*crowd.Control
	Process

	dir     string
	program *program
}

// StartCrowd starts a server with that many objects, and waits until it serves. It executes this program again, which must
// call crowd.Serve.
func StartCrowd(ctx context.Context, objects int) (*Crowd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "coppice-crowd-*")
	if err != nil {
		return nil, err
	}
	c := &Crowd{dir: dir}
	if c.program, err = startProgram(self, crowd.Command, strconv.Itoa(objects), dir); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	c.Process = Process{"crowd", c.program.cmd.Process.Pid}
	timeout, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.program.awaitLine(timeout, crowd.Ready); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if c.Control, err = crowd.NewControl(c.kubeconfig()); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Crowd) kubeconfig() string { return filepath.Join(c.dir, credentials.KubeconfigFile) }

// Stop stops the server, and removes its files.
func (c *Crowd) Stop() error {
	var err error
	if c.program != nil {
		err = c.program.stop()
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// Started is a collector that was started and may still read its objects.
type Started struct {
	Process
	// Began is the time of the start.
	Began time.Time

	program *program
}

// StartCollect starts coppice collect, and does not wait.
func (c *Crowd) StartCollect(binary string, flags ...string) (*Started, error) {
	return start("coppice collect", binary, append([]string{
		"collect", "--kubeconfig", c.kubeconfig(), "--bind-address=0", "--log-level=error",
	}, flags...)...)
}

// StartControllerManager starts kube-controller-manager, and does not wait.
func (c *Crowd) StartControllerManager(binaries realserver.Binaries, flags ...string) (*Started, error) {
	return start(string(realserver.ControllerManager), binaries[realserver.ControllerManager], append([]string{
		"--kubeconfig", c.kubeconfig(), "--leader-elect=false", "--secure-port=0", "--authentication-skip-lookup",
	}, flags...)...)
}

func start(name, binary string, args ...string) (*Started, error) {
	began := stopwatch.Now()
	p, err := startProgram(binary, args...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Started{Process: Process{name, p.cmd.Process.Pid}, Began: began, program: p}, nil
}

// Kill ends the process at once, as a failure would. It may have ended already.
func (s *Started) Kill() error {
	if err := s.program.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", s.Name, err)
	}
	<-s.program.ended
	return nil
}

// Failed returns an error with the end of the output if the process has ended.
func (s *Started) Failed() error {
	if s.program.running() {
		return nil
	}
	const most = 2000
	text := s.program.stderr.String()
	return fmt.Errorf("%s has ended: %w: %s", s.Name, s.program.err, text[max(0, len(text)-most):])
}

// Anonymous returns the resident memory of the process that is not backed by files, in MB of 10⁶ bytes. It is cheaper than
// Memory.
func (p Process) Anonymous() (float64, error) {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	return float64(status.RssAnon) / megabyte, nil
}

// ProcessorTime returns the processor time of the process, user and system.
func (p Process) ProcessorTime() (time.Duration, error) {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// Available returns the memory that new processes can use, in MB of 10⁶ bytes.
func Available() (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("read the free memory: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil || info.MemAvailable == nil {
		return 0, errors.Join(errors.New("read the free memory"), err)
	}
	return float64(*info.MemAvailable) * 1024 / megabyte, nil
}
