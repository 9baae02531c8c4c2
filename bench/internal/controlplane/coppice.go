package controlplane

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// Ephemeral is the flag of a control plane that keeps no data, as those of test suites.
const Ephemeral = "--ephemeral"

// StartCoppice runs coppice up and waits for its ready line. Without Ephemeral it syncs its data to disk.
func StartCoppice(ctx context.Context, binary string, args ...string) (*Plane, error) {
	dir, err := os.MkdirTemp("", "coppice-bench-*")
	if err != nil {
		return nil, err
	}
	c := &coppice{dir: dir, binary: binary, args: args}
	ready, err := c.start(ctx)
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return connected(c, ready)
}

// AuditLog returns the path of the audit log of a plane that StartCoppice started.
func (p *Plane) AuditLog() string {
	c, ok := p.server.(*coppice)
	if !ok {
		return ""
	}
	return filepath.Join(c.dir, "data", "audit.log")
}

// coppice is the process of coppice up.
type coppice struct {
	dir, binary string
	args        []string
	program     *program
}

func (c *coppice) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

func (c *coppice) processes() []Process {
	return []Process{{"coppice up", c.program.cmd.Process.Pid}}
}

func (c *coppice) start(ctx context.Context) (time.Duration, error) {
	args := append([]string{"up", "--write-kubeconfig", c.kubeconfig(), "--secure-port=0", "--log-level=error"}, c.args...)
	if !slices.Contains(args, Ephemeral) {
		args = append(args, "--data-dir", filepath.Join(c.dir, "data"))
	}
	watch := stopwatch.Start()
	var err error
	if c.program, err = startProgram(c.binary, args...); err != nil {
		return 0, err
	}
	timeout, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = c.program.awaitLine(timeout, "ready ")
	return watch.Elapsed(), err
}

func (c *coppice) restart(ctx context.Context) (time.Duration, error) {
	if err := c.program.stop(); err != nil {
		return 0, err
	}
	return c.start(ctx)
}

func (c *coppice) stop() error {
	var err error
	if c.program != nil {
		err = c.program.stop()
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
