package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
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
