package main

import (
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// marker is the environment variable by which the processes of a run are found: they inherit it,
	// also those whose parent has ended.
	marker = "COPPICE_SUITES_RUN"
	// interval is the time between two looks at the memory.
	interval = 200 * time.Millisecond
	// grace is how long processes may take to end after the tests.
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

// watch looks at the memory of the processes of a run until it ends, and returns how it ended.
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

// sample looks at the memory once.
func (m *measured) sample(mark string) {
	processes, err := marked(mark)
	if err != nil {
		return // the next look may succeed
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

// endProcesses returns how many processes of a run are still there after the grace, and ends them.
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
