// Command suites runs test suites of other projects, unchanged, with envtest: once with upstream's
// kube-apiserver and etcd as KUBEBUILDER_ASSETS, once with the assets of coppice.
//
//	go run ./suites -binary ../bin/coppice -o ../docs/performance [suite...]
//
// It writes a table with the passed tests, the time, the memory and the leftovers of either side, and
// each test that passes only with upstream's assets. The command fails if such a test has no explanation
// in the list of suites. The results of other suites stay as they are.
//
// With -controllers or -faults, the suites run with the assets of coppice alone, once for each value of
// COPPICE_CONTROLLERS, or of COPPICE_FAULTS; the command prints the number of passed tests and the names of the failed
// ones, and writes no files:
//
//	go run ./suites -binary ../bin/coppice -controllers "none namespace gc,namespace" jobset
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/report"
	"github.com/coppice-dev/coppice/bench/realserver"
)

type config struct {
	binary, modules, output, logs string
	attempts                      int
	timeout                       time.Duration
	// settings are those to run the suites with; empty for the comparison.
	settings []setting
	only     []string
}

func main() {
	var c config
	flag.StringVar(&c.binary, "binary", "../bin/coppice", "the binary of coppice")
	flag.StringVar(&c.modules, "modules", ".", "the directory with the module kubernetes, which kube-apiserver is built from")
	flag.StringVar(&c.output, "o", "../docs/performance", "directory for the table, and for the results in it")
	flag.StringVar(&c.logs, "logs", "", "directory for the output of the suites; without it, only that of failures is kept, for as long as the command runs")
	flag.IntVar(&c.attempts, "attempts", 2, "how often the tests of a package are run before a failure counts")
	flag.DurationVar(&c.timeout, "timeout", 15*time.Minute, "how long the tests of a package may take")
	controllers := flag.String("controllers", "", "run with the assets of coppice alone, with each of these values of COPPICE_CONTROLLERS, separated by spaces; print the outcomes, and write nothing")
	faults := flag.String("faults", "", "run with the assets of coppice alone, with each of these levels of COPPICE_FAULTS, separated by spaces; print the outcomes, and write nothing")
	flag.Parse()
	c.only = flag.Args()
	c.settings = append(settingsOf(controllersVariable, *controllers), settingsOf(faultsVariable, *faults)...)
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "suites: %v\n", err)
		os.Exit(1)
	}
}

func (c config) run(ctx context.Context) (err error) {
	chosen, err := choose(suites(), c.only)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "coppice-suites-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if c.logs == "" {
		c.logs = filepath.Join(work, "logs")
	}
	if err := os.MkdirAll(c.logs, 0o755); err != nil {
		return err
	}
	if len(c.settings) > 0 {
		return c.trySettings(ctx, work, chosen)
	}
	assets, err := c.assets(ctx, work)
	if err != nil {
		return err
	}
	machine, err := c.machine(ctx)
	if err != nil {
		return err
	}
	var outcome error
	for _, s := range chosen {
		r, err := c.compare(ctx, work, s, assets)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Machine = machine
		if err := c.keep(r); err != nil {
			return err
		}
		outcome = c.write() // after each suite: an interrupted run keeps its results
	}
	return outcome
}

// machine describes the machine and the programs.
func (c config) machine(ctx context.Context) (report.Machine, error) {
	machine, err := report.ThisMachine()
	if err != nil {
		return machine, err
	}
	if machine.Kubernetes, err = realserver.Versions(ctx, c.modules, realserver.APIServer, realserver.Etcd); err != nil {
		return machine, err
	}
	version, err := exec.CommandContext(ctx, c.binary, "version").Output()
	if err != nil {
		return machine, fmt.Errorf("ask coppice for its version: %w", err)
	}
	machine.Coppice = strings.TrimSpace(string(version))
	return machine, nil
}

const (
	rawDir    = "raw"
	rawPrefix = "suite-"
	tableFile = "suites.md"
)

// keep writes the result of a suite.
func (c config) keep(r result) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(c.output, rawDir), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.output, rawDir, rawPrefix+r.Suite+".json"), append(text, '\n'), 0o644)
}

// write writes the table of all stored results.
func (c config) write() error {
	results := map[string]result{}
	for _, s := range suites() {
		text, err := os.ReadFile(filepath.Join(c.output, rawDir, rawPrefix+s.name+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var r result
		if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil {
			return fmt.Errorf("read the result of %s: %w", s.name, err)
		}
		results[s.name] = r
	}
	text, unexplained := table(suites(), results)
	if err := os.WriteFile(filepath.Join(c.output, tableFile), []byte(text), 0o644); err != nil {
		return err
	}
	if unexplained > 0 {
		return fmt.Errorf("%d tests pass with upstream's assets, and not with ours, for no known reason", unexplained)
	}
	return nil
}

// choose returns the named suites, or all if names is empty.
func choose(all []suite, names []string) ([]suite, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []suite
	for _, name := range names {
		i := slices.IndexFunc(all, func(s suite) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no suite %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// side is one of the two control planes that the suites run on.
type side int

const (
	upstream side = iota
	ours
	sides
)

func (s side) String() string { return [...]string{"kube-apiserver", "coppice"}[s] }

// assets makes the directories that KUBEBUILDER_ASSETS names.
func (c config) assets(ctx context.Context, work string) ([sides]string, error) {
	var dirs [sides]string
	binaries, err := realserver.Find(ctx, c.modules, os.Stderr, realserver.Etcd, realserver.APIServer)
	if err != nil {
		return dirs, err
	}
	version, err := exec.CommandContext(ctx, binaries[realserver.APIServer], "--version").Output()
	if err != nil {
		return dirs, fmt.Errorf("ask kube-apiserver for its version: %w", err)
	}
	if bytes.Contains(version, []byte("coppice")) {
		return dirs, errors.New("KUBEBUILDER_ASSETS has the assets of coppice; unset it, so that there is something to compare with")
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return dirs, fmt.Errorf("the suites need kubectl: %w", err)
	}
	dirs[upstream] = filepath.Join(work, "upstream")
	if err := os.Mkdir(dirs[upstream], 0o755); err != nil {
		return dirs, err
	}
	for name, path := range map[string]string{"etcd": binaries[realserver.Etcd], "kube-apiserver": binaries[realserver.APIServer], "kubectl": kubectl} {
		if err := os.Symlink(path, filepath.Join(dirs[upstream], name)); err != nil {
			return dirs, err
		}
	}
	dirs[ours], err = c.ownAssets(ctx, work)
	return dirs, err
}

// ownAssets makes the directory with the assets of coppice.
func (c config) ownAssets(ctx context.Context, work string) (string, error) {
	made, err := exec.CommandContext(ctx, c.binary, "assets", "--dir", filepath.Join(work, "ours")).Output()
	if err != nil {
		return "", fmt.Errorf("make the assets of coppice: %w", err)
	}
	return strings.TrimSpace(string(made)), nil
}

// compare runs a suite on both sides, package by package.
func (c config) compare(ctx context.Context, work string, s suite, assets [sides]string) (result, error) {
	compiled, err := c.compile(ctx, work, s)
	if err != nil {
		return result{}, err
	}
	var m [sides]measured
	for i := range compiled.packages {
		for n, dir := range assets {
			side := side(n)
			got, err := c.try(ctx, compiled, i, on{assets: dir, label: side.String()})
			if err != nil {
				return result{}, err
			}
			m[side].add(got)
		}
	}
	r := result{Suite: s.name, Version: compiled.version, Packages: len(compiled.packages), Differences: differences(m[upstream].tests, m[ours].tests)}
	for n := range m {
		r.Sides[n] = m[n].figures()
	}
	return r, nil
}
