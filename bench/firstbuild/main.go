// Command firstbuild measures the first build of coppice with an empty build cache, and lists the
// packages that take the most time:
//
//	go run ./firstbuild -dir .. -o ../docs/performance/first-build.md
//
// It lists the processor time of the compiler and the linker, because other work on the machine
// affects it less than the elapsed time.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	dir := flag.String("dir", "..", "the directory of the module")
	graph := flag.String("graph", "", "read this action graph of an earlier build instead of building (go build -debug-actiongraph)")
	output := flag.String("o", "/dev/stdout", "file for the listing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *graph, *output); err != nil {
		fmt.Fprintf(os.Stderr, "firstbuild: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, graph, output string) error {
	if graph == "" {
		work, err := os.MkdirTemp("", "coppice-first-build-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(work) }()
		graph = filepath.Join(work, "graph.json")
		build := exec.CommandContext(ctx, "go", "build", "-debug-actiongraph", graph, "-o", filepath.Join(work, "coppice"), "./cmd/coppice")
		build.Dir, build.Stderr = dir, os.Stderr
		build.Env = append(os.Environ(), "GOCACHE="+filepath.Join(work, "cache"))
		if err := build.Run(); err != nil {
			return fmt.Errorf("%v: %w", build.Args, err)
		}
	}
	text, err := os.ReadFile(graph)
	if err != nil {
		return err
	}
	var actions []action
	if err := json.Unmarshal(text, &actions); err != nil {
		return fmt.Errorf("read %s: %w", graph, err)
	}
	commit, err := exec.CommandContext(ctx, "git", "-C", dir, "describe", "--always", "--dirty").Output()
	if err != nil {
		return err
	}
	listing, err := list(actions, machine{commit: strings.TrimSpace(string(commit)), processors: runtime.NumCPU()})
	if err != nil {
		return err
	}
	return os.WriteFile(output, []byte(listing), 0o644)
}
