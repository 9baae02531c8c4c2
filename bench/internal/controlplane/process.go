package controlplane

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

const megabyte = 1e6

// Process is a running process of a plane.
type Process struct {
	Name string
	PID  int
}

// Memory is the memory of a process, in MB of 10⁶ bytes.
type Memory struct {
	// Anonymous is RssAnon: resident memory that is not backed by files. Mapping or unmapping
	// the pages of a binary does not change it.
	Anonymous float64
	// Proportional is PSS: all resident memory, with pages that several processes share
	// divided among them.
	Proportional float64
}

// Memory returns the memory of the process.
func (p Process) Memory() (Memory, error) {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return Memory{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return Memory{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	rollup, err := proc.ProcSMapsRollup()
	if err != nil {
		return Memory{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	return Memory{float64(status.RssAnon) / megabyte, float64(rollup.Pss) / megabyte}, nil
}

// Processes returns the processes of the server and of its collectors.
func (p *Plane) Processes() []Process {
	all := p.server.processes()
	for _, run := range p.programs {
		if run.running() {
			all = append(all, Process{"coppice collect", run.cmd.Process.Pid})
		}
	}
	return all
}

// Memory returns the memory of all processes together.
func (p *Plane) Memory() (Memory, error) {
	var all Memory
	for _, process := range p.Processes() {
		m, err := process.Memory()
		if err != nil {
			return Memory{}, err
		}
		all.Anonymous += m.Anonymous
		all.Proportional += m.Proportional
	}
	return all, nil
}

// ProcessorTime returns the processor time, user and system, of all processes together.
func (p *Plane) ProcessorTime() (time.Duration, error) {
	var all time.Duration
	for _, process := range p.Processes() {
		one, err := process.ProcessorTime()
		if err != nil {
			return 0, err
		}
		all += one
	}
	return all, nil
}
