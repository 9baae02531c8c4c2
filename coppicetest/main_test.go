package coppicetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMain builds the binary, unless COPPICE_BIN names one.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("COPPICE_BIN") != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "coppicetest-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "coppice")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", binary, "./cmd/coppice")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build coppice: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv("COPPICE_BIN", binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
