package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of processor time in /proc, the same on every Linux.
const clockTick = 10 * time.Millisecond

// spent is processor time, user and system, of the two sides of a measurement.
type spent struct{ server, client time.Duration }

// spentSoFar reads the processor time of the control plane and of this process. That of
// a control plane which is not one process of its own is not known, and zero.
func (p *plane) spentSoFar() (spent, error) {
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return spent{}, fmt.Errorf("read the processor time of the client: %w", err)
	}
	client := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	if p.command == nil {
		return spent{client: client}, nil
	}
	path := fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid)
	stat, err := os.ReadFile(path)
	if err != nil {
		return spent{}, err
	}
	// After the name, which may hold anything and ends with the last parenthesis: the
	// third field is the first, user time is the 14th, system time the 15th.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return spent{}, fmt.Errorf("%s has too few fields", path)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return spent{}, fmt.Errorf("read %s: %w", path, err)
		}
		ticks += n
	}
	return spent{server: time.Duration(ticks) * clockTick, client: client}, nil
}

// costs are the processor time per operation that n operations took since before.
func (s spent) costs(before spent, what string, n int) []sample {
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
	return []sample{
		{what + ", processor time of the server", "ms", each(s.server - before.server)},
		{what + ", processor time of the client", "ms", each(s.client - before.client)},
	}
}

// profileSeconds is for how long a profile is taken, at most: until what is profiled ends.
const profileSeconds = 3

// profile begins to take a CPU profile of the control plane, and returns what ends
// that. It does nothing when no directory is given.
func (p *plane) profile(ctx context.Context, dir, what string) (end func() error) {
	if dir == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		data, err := p.client.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").
			Param("seconds", strconv.Itoa(profileSeconds)).SetHeader("Accept", "*/*").DoRaw(ctx)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(what, " ", "-")+".pprof"), data, 0o600)
		}
		done <- err
	}()
	return func() error { return <-done }
}
