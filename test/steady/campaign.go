package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"
)

// campaign has the runs to make, and the failures so far. Several goroutines use what stands below mu.
type campaign struct {
	now      func() time.Time
	modules  []string // directories
	patterns []string // of packages, in each module
	tests    string   // expression of names of tests; "" is all
	unraced  *regexp.Regexp
	runs     int           // of each package
	streams  int           // packages at once
	timeout  time.Duration // of one run
	output   string        // directory of the outputs of failed runs; "" is a temporary one
	load     load
	record   *record

	mu       sync.Mutex
	out      io.Writer
	failures int
}

// printf prints a line of the report.
func (c *campaign) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, format, args...)
}

// The modes in which the tests of a package are built.
const (
	plain = ""
	raced = " -race"
)

// One of racedShare runs has the race detector, which makes it several times longer.
const racedShare = 4

// pkg is a package with tests.
type pkg struct {
	module   string // directory
	path     string // import path
	dir      string
	progress string // "package 3 of 80"
}

func (c *campaign) run(ctx context.Context) error {
	work, err := os.MkdirTemp("", "coppice-steady-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if c.output == "" {
		if c.output, err = os.MkdirTemp("", "coppice-steady-failures-*"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(c.output, 0o750); err != nil {
		return err
	}
	packages, err := c.packages(ctx)
	if err != nil {
		return err
	}
	streams, ctx := errgroup.WithContext(ctx)
	streams.SetLimit(c.streams)
	for i, p := range packages {
		p.progress = fmt.Sprintf("package %d of %d", i+1, len(packages))
		streams.Go(func() error {
			racedRuns := (c.runs + racedShare/2) / racedShare // rounded: two runs are one of each
			plainRuns := c.runs - racedRuns
			if c.unraced.MatchString(p.path) {
				plainRuns, racedRuns = c.runs, 0
			}
			if err := c.repeat(ctx, p, plain, plainRuns, work); err != nil {
				return err
			}
			return c.repeat(ctx, p, raced, racedRuns, work)
		})
	}
	if err := streams.Wait(); err != nil {
		return err
	}
	if c.failures > 0 {
		return fmt.Errorf("%s failed; their output is in %s", english.Plural(c.failures, "run", ""), c.output)
	}
	c.printf("no failure in %s of each of %s\n", english.Plural(c.runs, "run", ""), english.Plural(len(packages), "package", ""))
	return nil
}

// packages lists the packages that have tests.
func (c *campaign) packages(ctx context.Context) ([]pkg, error) {
	var found []pkg
	for _, module := range c.modules {
		format := `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}`
		list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, c.patterns...)...)
		list.Dir, list.Stderr = module, os.Stderr
		text, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("list the packages of %s: %w", module, err)
		}
		for line := range strings.Lines(string(text)) {
			if path, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				found = append(found, pkg{module: module, path: path, dir: dir})
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no package of %q has tests", c.patterns)
	}
	return found, nil
}

// repeat builds the tests of a package, and runs them but for the runs that were made before. It returns an error if they
// cannot be built, or if ctx has ended.
func (c *campaign) repeat(ctx context.Context, p pkg, mode string, runs int, work string) error {
	if runs == 0 {
		return nil
	}
	binary := filepath.Join(work, strings.NewReplacer("/", "_", " ", "").Replace(p.path+mode)+".test")
	defer func() { _ = os.Remove(binary) }()
	build := append([]string{"test", "-c", "-o", binary}, strings.Fields(mode)...)
	compile := exec.CommandContext(ctx, "go", append(build, p.path)...)
	compile.Dir = p.module
	if mode == raced {
		compile.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if text, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", p.path, err, text)
	}
	key, err := c.record.key(ctx, p.path, binary, c.tests)
	if err != nil {
		return err
	}
	began, failed, before, took := c.now(), 0, 0, durations{}
	for n := range runs {
		r := attempt{number: n + 1, mode: mode, binary: binary, isLoaded: n%2 == 1, onOneProcessor: n%4 >= 2}
		ended := c.record.of(key, r.number)
		if ended != unknown {
			before++
		} else {
			text, o, err := c.once(ctx, p, r)
			if err != nil {
				return err
			}
			took.add(text, r)
			if err := c.record.add(key, r.number, o); err != nil {
				return err
			}
			ended = o
		}
		if ended == fails {
			failed++
		}
	}
	earlier := ""
	if before > 0 {
		earlier = fmt.Sprintf("%d of them made before, ", before)
	}
	c.mu.Lock()
	c.failures += failed
	c.mu.Unlock()
	c.printf("%s%s%s: %d of %d runs failed, %s%s (%s)\n", took.long(), p.path, mode, failed, runs, earlier, c.now().Sub(began).Round(time.Second), p.progress)
	return nil
}

// attempt is one run of the tests of a package.
type attempt struct {
	number         int
	mode           string // plain or raced
	binary         string
	isLoaded       bool // beside processes that burn the cores
	onOneProcessor bool // its goroutines take turns
}

// String names the run: "run 4, beside a load, on one processor".
func (r attempt) String() string {
	text := fmt.Sprintf("run %d", r.number)
	if r.isLoaded {
		text += ", beside a load"
	}
	if r.onOneProcessor {
		text += ", on one processor"
	}
	return text
}

// once runs the tests once, and reports their failure. It returns their output.
func (c *campaign) once(ctx context.Context, p pkg, r attempt) (output string, ended outcome, err error) {
	if r.isLoaded {
		stop, err := c.load.start()
		if err != nil {
			return "", unknown, err
		}
		defer stop()
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout+time.Minute) // the tests end themselves before, with stacks
	defer cancel()
	test := exec.CommandContext(limited, r.binary, "-test.shuffle=on", "-test.v=test2json", "-test.paniconexit0",
		"-test.timeout="+c.timeout.String(), "-test.run="+c.tests)
	test.Dir, test.WaitDelay = p.dir, time.Second
	if r.onOneProcessor {
		test.Env = append(os.Environ(), "GOMAXPROCS=1")
	}
	text, failure := test.CombinedOutput()
	if ctx.Err() != nil {
		return "", unknown, errors.New("interrupted")
	}
	if failure == nil {
		return string(text), passes, nil
	}
	c.printf("FAIL %s%s, %s: %v\n%s", p.path, r.mode, r, failure, summary(string(text)))
	name := strings.NewReplacer("/", "_", " ", "").Replace(fmt.Sprintf("%s%s_%d.txt", p.path, r.mode, r.number))
	return string(text), fails, os.WriteFile(filepath.Join(c.output, name), text, 0o600)
}
