package main

import (
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// marker is the environment variable that marks the processes of a run: they inherit it, so
	// processes whose parent has ended are found, too.
	marker = "COPPICE_SUITES_RUN"
	// interval is the time between two samples of the memory.
	interval = 200 * time.Millisecond
	// grace is the time that processes have to end after the tests.
	grace = 2 * time.Second
)

// marked returns the processes that have an environment variable. One that ends meanwhile is left out.
func marked(mark string) (procfs.Procs, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p procfs.Proc) bool {
		environment, err := p.Environ()
		return err != nil || !slices.Contains(environment, mark)
	}), nil
}

// watch samples the memory of the processes of a run until the run ends, and returns its error.
func (m *measured) watch(mark string, ended <-chan error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			m.sample(mark)
		}
	}
}

// sample reads the memory once.
func (m *measured) sample(mark string) {
	processes, err := marked(mark)
	if err != nil {
		return // the next sample may succeed
	}
	memory, controlPlane := 0, 0
	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil {
			continue // it has ended
		}
		memory += stat.ResidentMemory()
		if stat.Comm == "kube-apiserver" || stat.Comm == "etcd" {
			controlPlane += stat.ResidentMemory()
		}
	}
	m.memory, m.controlPlane = max(m.memory, memory), max(m.controlPlane, controlPlane)
}

// endProcesses ends the processes of a run that are still running after the grace, and returns their
// number.
func endProcesses(mark string) (int, error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for clock := stopwatch.Start(); ; <-ticker.C {
		left, err := marked(mark)
		if err != nil || len(left) == 0 {
			return 0, err
		}
		if clock.Elapsed() > grace {
			for _, p := range left {
				_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended just now
			}
			return len(left), nil
		}
	}
}
