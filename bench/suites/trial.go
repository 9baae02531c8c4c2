package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// trial is a run of a package's tests with some assets.
type trial struct {
	p           *testPackage
	assets, log string
	environment []string
	timeout     time.Duration
}

// measured is the result of a run.
type measured struct {
	tests outcomes
	// again is the number of tests that failed at first and passed when run again.
	again int
	time  time.Duration
	// memory and controlPlane are the peaks of the total resident memory of all processes, and of
	// kube-apiserver and etcd, in bytes.
	memory, controlPlane int
	// processes and files count the processes and files that were left behind.
	processes, files int
}

func (m measured) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped in %.1f s", m.tests.count(passed), m.tests.count(failed), m.tests.count(skipped), m.time.Seconds())
}

// add adds a run: it sums times and leftovers, and keeps the maximum of the memory.
func (m *measured) add(other measured) {
	if m.tests == nil {
		m.tests = outcomes{}
	}
	maps.Copy(m.tests, other.tests)
	m.again += other.again
	m.time += other.time
	m.memory, m.controlPlane = max(m.memory, other.memory), max(m.controlPlane, other.controlPlane)
	m.processes += other.processes
	m.files += other.files
}

// run runs the tests, again if one fails, up to a number of attempts. The figures come from the first
// run.
func (t trial) run(ctx context.Context, attempts int) (measured, error) {
	m, err := t.once(ctx)
	for n := 1; err == nil && n < attempts && m.tests.count(failed) > 0; n++ {
		var next measured
		if next, err = t.once(ctx); err != nil {
			break
		}
		for name, got := range next.tests {
			if got == passed && m.tests[name] != passed {
				m.tests[name] = passed
				m.again++
			}
		}
	}
	named := outcomes{}
	for name, got := range m.tests {
		named[t.p.path+": "+name] = got
	}
	m.tests = named
	return m, err
}

// once runs the tests once, in the directory of the package, with a directory of its own for temporary
// files.
func (t trial) once(ctx context.Context) (m measured, err error) {
	temporary, err := os.MkdirTemp("", "suite-")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	inside := filepath.Join(temporary, "tmp")
	if err := os.Mkdir(inside, 0o755); err != nil {
		return m, err
	}
	output, err := os.Create(t.log)
	if err != nil {
		return m, err
	}
	defer output.Close()
	command := exec.CommandContext(ctx, t.p.binary, "-test.v=test2json", "-test.timeout="+t.timeout.String())
	report := filepath.Join(temporary, "report.json")
	if t.p.ginkgo {
		// Specs that do not end in time are interrupted before the test binary is, which would write no report.
		command.Args = append(command.Args, "-ginkgo.json-report="+report, "-ginkgo.timeout="+(t.timeout*9/10).String())
	}
	mark := marker + "=" + temporary
	command.Dir, command.Stdout, command.Stderr = t.p.dir, output, output
	command.Env = append(slices.Concat(os.Environ(), t.environment), "KUBEBUILDER_ASSETS="+t.assets, "TMPDIR="+inside, "USE_EXISTING_CLUSTER=", "KUBECONFIG=", mark)
	clock := stopwatch.Start()
	if err := command.Start(); err != nil {
		return m, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	failure := m.watch(mark, ended)
	m.time = clock.Elapsed()
	// Also after a canceled run: kube-apiserver and etcd outlive it.
	if m.processes, err = endProcesses(mark); err != nil || ctx.Err() != nil {
		return m, errors.Join(err, ctx.Err())
	}
	if m.files, err = countEntries(inside); err != nil {
		return m, err
	}
	if m.tests, err = t.read(report); err == nil && len(m.tests) == 0 {
		err = fmt.Errorf("no test ran: %w; see %s", failure, t.log)
	}
	return m, err
}

// read returns the outcomes of the tests.
func (t trial) read(report string) (outcomes, error) {
	output, err := os.ReadFile(t.log)
	if err != nil {
		return nil, err
	}
	tests := parseTests(output)
	data, err := os.ReadFile(report)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return tests, nil
	case err != nil:
		return nil, err
	}
	return tests, tests.addSpecs(data, runnerOf(output))
}

func countEntries(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	return len(entries), err
}
