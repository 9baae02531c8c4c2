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
	"time"
)

// campaign has the runs to make, and the failures so far. One goroutine uses it.
type campaign struct {
	out      io.Writer
	now      func() time.Time
	modules  []string // directories
	patterns []string // of packages, in each module
	tests    string   // expression of names of tests; "" is all
	unraced  *regexp.Regexp
	runs     int
	burners  int
	timeout  time.Duration // of one run
	output   string        // directory of the outputs of failed runs; "" is a temporary one

	failures int
}

// The modes in which the tests of a package are built.
const (
	plain = ""
	raced = " -race"
)

// pkg is a package with tests.
type pkg struct {
	module string // directory
	path   string // import path
	dir    string
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
	for i, p := range packages {
		for _, mode := range []string{plain, raced} {
			if mode == raced && c.unraced.MatchString(p.path) {
				continue
			}
			if err := c.repeat(ctx, p, mode, work, fmt.Sprintf("package %d of %d", i+1, len(packages))); err != nil {
				return err
			}
		}
	}
	if c.failures > 0 {
		return fmt.Errorf("%d runs have failed; their output is in %s", c.failures, c.output)
	}
	fmt.Fprintf(c.out, "no failure in %d runs of each of %d packages\n", c.runs, len(packages))
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
				found = append(found, pkg{module, path, dir})
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no package of %q has tests", c.patterns)
	}
	return found, nil
}

// repeat builds the tests of a package, and runs them. It returns an error if they cannot be built, or if ctx has ended.
func (c *campaign) repeat(ctx context.Context, p pkg, mode, work, progress string) error {
	binary := filepath.Join(work, "package.test")
	build := append([]string{"test", "-c", "-o", binary}, strings.Fields(mode)...)
	compile := exec.CommandContext(ctx, "go", append(build, p.path)...)
	compile.Dir = p.module
	if text, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", p.path, err, text)
	}
	began, failed, took := c.now(), c.failures, durations{}
	for n := range c.runs {
		r := attempt{number: n + 1, mode: mode, binary: binary, isLoaded: n%2 == 1, onOneProcessor: n%4 >= 2}
		text, err := c.once(ctx, p, r)
		if err != nil {
			return err
		}
		took.add(text, r)
	}
	fmt.Fprint(c.out, took.long())
	fmt.Fprintf(c.out, "%s%s: %d of %d runs failed, %s (%s)\n", p.path, mode, c.failures-failed, c.runs, c.now().Sub(began).Round(time.Second), progress)
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
func (c *campaign) once(ctx context.Context, p pkg, r attempt) (string, error) {
	if r.isLoaded {
		stop, err := startBurners(c.burners)
		if err != nil {
			return "", err
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
	text, err := test.CombinedOutput()
	if ctx.Err() != nil {
		return "", errors.New("interrupted")
	}
	if err == nil {
		return string(text), nil
	}
	c.failures++
	fmt.Fprintf(c.out, "FAIL %s%s, %s: %v\n%s", p.path, r.mode, r, err, summary(string(text)))
	name := strings.NewReplacer("/", "_", " ", "").Replace(fmt.Sprintf("%s%s_%d.txt", p.path, r.mode, r.number))
	return string(text), os.WriteFile(filepath.Join(c.output, name), text, 0o600)
}
