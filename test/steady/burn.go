package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// burn is the argument with which the command is one of its own burners.
const burn = "burn"

// burnUntilEOF keeps a core busy until its input ends, as it does when the process that has started it ends.
func burnUntilEOF() {
	go func() {
		for n := uint64(1); ; n++ {
			if n == 0 {
				return
			}
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// load is the processes that keep cores busy while anybody wants them to. Its methods may be called concurrently.
type load struct {
	burners int

	mu    sync.Mutex
	users int
	end   func()
}

// start starts the processes unless they run already. stop ends them when nobody else uses them, and waits for their end.
func (l *load) start() (stop func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == 0 {
		if l.end, err = startBurners(l.burners); err != nil {
			return nil, err
		}
	}
	l.users++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 {
			l.end()
		}
	}, nil
}

// startBurners starts processes that keep cores busy. stop ends them, and waits for their end.
func startBurners(n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for range n {
		burner := exec.Command(self, burn) // it ends with its input
		input, err := burner.StdinPipe()
		if err == nil {
			err = burner.Start()
		}
		if err != nil {
			stop()
			return nil, fmt.Errorf("start a burner: %w", err)
		}
		stops = append(stops, func() {
			_ = input.Close()
			_ = burner.Wait()
		})
	}
	return stop, nil
}
