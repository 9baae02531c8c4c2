package main

import (
	"errors"
	"os"
	"os/exec"
)

// run runs the program until it ends, and ends with its exit code: a process of Windows cannot
// become another. It returns only an error.
func run(program string, args []string) error {
	command := &exec.Cmd{Path: program, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	err := command.Run()
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) {
		os.Exit(exited.ExitCode())
	}
	if err == nil {
		os.Exit(0)
	}
	return err
}
