//go:build unix

package main

import (
	"os"
	"syscall"
)

// run turns this process into the program: it keeps its id, its parent and its signals. It returns
// only an error.
func run(program string, args []string) error {
	return syscall.Exec(program, args, os.Environ())
}
