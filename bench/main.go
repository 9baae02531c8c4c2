// Command bench measures all figures in README and docs, and writes the report.
//
//	go run . [-runs 3] [-o ../docs/performance] [section ...]
//
// Without arguments it measures all sections (go run . -h lists them), each several times, in
// turn, so that variations in the machine's speed affect all of them alike. Each run of a
// section starts fresh servers. With -o it writes each value to raw/<section>.jsonl and the report
// to README.md in that directory, and renews the rows that the repository's README quotes, and the table of
// scale.md; sections that are not measured keep their figures.
//
// With -quick it only checks, within minutes, that the sections work; the figures then mean
// nothing.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/crowd"
	"github.com/coppice-dev/coppice/bench/internal/report"
	"github.com/coppice-dev/coppice/bench/internal/sections"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
	"github.com/coppice-dev/coppice/bench/realserver"
)

type config struct {
	binary, modules, repository string
	runs                        int
	objects                     []int // of section large, or none for its own
	quick                       bool
	output, profiles            string
	sections                    []sections.Section
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == crowd.Command { // a process that section large starts
		os.Exit(serveCrowd(os.Args[2:]))
	}
	c, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// serveCrowd is the process of a synthetic API server. It returns the exit code.
func serveCrowd(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := crowd.Serve(ctx, args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

func parse(args []string) (config, error) {
	var c config
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&c.binary, "binary", "../bin/coppice", "the coppice binary to measure")
	flags.StringVar(&c.modules, "modules", ".", "the directory with the modules kubernetes and kwok, which upstream's binaries are built from")
	flags.StringVar(&c.repository, "repository", "..", "the directory of the main module")
	flags.IntVar(&c.runs, "runs", 3, "how often to measure; sections that take long are limited to fewer")
	flags.Func("objects", "the numbers of objects of section large, from few to many, such as 10000,100000", func(text string) error {
		var err error
		c.objects, err = numbers(text)
		return err
	})
	flags.BoolVar(&c.quick, "quick", false, "one run with small sizes, to see that the sections work")
	flags.StringVar(&c.output, "o", "", "the directory for the report and the raw values; without it the report is printed only")
	flags.StringVar(&c.profiles, "profiles", "", "a directory for CPU and heap profiles of the servers, which are slower meanwhile")
	all := sections.All()
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: bench [flags] [section ...]\n\nSections:\n")
		for _, s := range all {
			fmt.Fprintf(flags.Output(), "  %-10s %s\n", s.Name, s.Title)
		}
		fmt.Fprintf(flags.Output(), "\nFlags:\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if c.runs < 1 {
		return config{}, fmt.Errorf("-runs %d is less than 1", c.runs)
	}
	if c.quick {
		c.runs = 1
	}
	c.sections = all
	if flags.NArg() > 0 {
		c.sections = slices.DeleteFunc(slices.Clone(all), func(s sections.Section) bool { return !slices.Contains(flags.Args(), s.Name) })
	}
	for _, name := range flags.Args() {
		if !slices.ContainsFunc(all, func(s sections.Section) bool { return s.Name == name }) {
			return config{}, fmt.Errorf("there is no section %q", name)
		}
	}
	return c, nil
}

// numbers parses numbers that commas separate.
func numbers(text string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", part)
		}
		all = append(all, n)
	}
	return all, nil
}

// run measures the sections and writes the report. If a section fails, the others are still
// measured.
func run(ctx context.Context, c config, out, progress io.Writer) error {
	machine, err := describe(ctx, c)
	if err != nil {
		return err
	}
	results, err := open(c, machine)
	if err != nil {
		return err
	}
	began := stopwatch.Start()
	failures := []error{measure(ctx, c, results, progress)}
	fmt.Fprintf(progress, "all sections: %.0f s\n", began.Seconds())
	failures = append(failures, publish(c, results, out), results.Close())
	return errors.Join(failures...)
}

func open(c config, machine report.Machine) (*report.Results, error) {
	if c.output == "" {
		return report.Memory(machine), nil
	}
	return report.Open(c.output, machine)
}

// measure measures one run of all sections, one after the other.
func measure(ctx context.Context, c config, results *report.Results, progress io.Writer) error {
	binaries := func(more ...realserver.Binary) (realserver.Binaries, error) {
		all := append([]realserver.Binary{realserver.Etcd, realserver.APIServer, realserver.ControllerManager}, more...)
		return realserver.Find(ctx, c.modules, progress, all...)
	}
	sizes := sections.Full()
	if c.quick {
		sizes = sections.Quick()
	}
	if len(c.objects) > 0 {
		sizes.Multitudes = c.objects
	}
	var failures []error
	for turn := range c.runs {
		for _, s := range c.sections {
			runs := c.runs
			if s.MostRuns > 0 {
				runs = min(runs, s.MostRuns)
			}
			if turn >= runs || ctx.Err() != nil {
				continue
			}
			b := &sections.Bench{
				Coppice: c.binary, Repository: c.repository, Profiles: c.profiles, Sizes: sizes, Section: s.Name, Run: turn, Runs: runs,
				Kubernetes: binaries, Stages: func() ([]string, error) { return realserver.Stages(ctx, c.modules) },
			}
			began := stopwatch.Start()
			if err := once(ctx, s, b); err != nil {
				failures = append(failures, fmt.Errorf("%s, run %d: %w", s.Name, turn+1, err))
				fmt.Fprintln(progress, failures[len(failures)-1])
				continue
			}
			fmt.Fprintf(progress, "%s, run %d of %d: %.0f s\n", s.Name, turn+1, runs, began.Seconds())
			if err := results.Add(b.Values...); err != nil {
				return errors.Join(append(failures, err)...)
			}
		}
	}
	return errors.Join(append(failures, ctx.Err())...)
}

// runTimeout limits one run of one section, so that a hanging server fails only that run.
const runTimeout = 20 * time.Minute

func once(ctx context.Context, s sections.Section, b *sections.Bench) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	return s.Measure(ctx, b)
}

// publish prints the report. If there is a directory of results, it writes the report into it, and renews what the
// README of the repository quotes, and the table of scale.md.
func publish(c config, results *report.Results, out io.Writer) error {
	var headings []report.Section
	for _, s := range sections.All() {
		headings = append(headings, s.Section)
	}
	var text bytes.Buffer
	if err := results.Markdown(&text, headings); err != nil {
		return err
	}
	if _, err := out.Write(text.Bytes()); err != nil {
		return err
	}
	if c.output == "" {
		return nil
	}
	return errors.Join(
		rewrite(filepath.Join(c.output, "README.md"), filepath.Join(c.repository, "README.md"), text.String()),
		embed(filepath.Join(c.output, "scale.md"), text.String()))
}

// embed renews the tables that a document takes from the report, if there is such a document.
func embed(path, text string) error {
	document, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(report.Embed(string(document), text)), 0o644)
}

// rewrite writes the report, and the rows that a document quotes from the report of before.
func rewrite(path, quoting, text string) error {
	earlier, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	document, err := os.ReadFile(quoting)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(quoting, []byte(report.Requote(string(document), string(earlier), text)), 0o644)
}

// describe returns the machine and the versions of both sides.
func describe(ctx context.Context, c config) (report.Machine, error) {
	machine, err := report.ThisMachine()
	if err != nil {
		return report.Machine{}, err
	}
	machine.Quick = c.quick
	version, err := exec.CommandContext(ctx, c.binary, "version").Output()
	if err != nil {
		return report.Machine{}, fmt.Errorf("%s version: %w", c.binary, err)
	}
	machine.Coppice = strings.Join(strings.Fields(string(version)), " ")
	machine.Kubernetes, err = realserver.Versions(ctx, c.modules, realserver.APIServer, realserver.Etcd, realserver.Kwok)
	return machine, err
}
