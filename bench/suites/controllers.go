package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// controllersVariable names the controllers that the assets of coppice run.
const controllersVariable = "COPPICE_CONTROLLERS"

// compiledSuite is a suite with compiled tests.
type compiledSuite struct {
	name, version string
	packages      []testPackage
	environment   []string
}

// compile fetches a suite and compiles the tests of its packages.
func (c config) compile(ctx context.Context, work string, s suite) (compiledSuite, error) {
	dir, version, err := s.source.fetch(ctx, filepath.Join(work, "source", s.name))
	if err != nil {
		return compiledSuite{}, err
	}
	packages, err := packagesOf(ctx, dir, s.packages)
	if err != nil {
		return compiledSuite{}, err
	}
	environment, err := s.environment(ctx, dir)
	if err != nil {
		return compiledSuite{}, err
	}
	for i := range packages {
		p := &packages[i]
		log.Printf("%s: compile %s", s.name, p.path)
		if err := p.compile(ctx, filepath.Join(work, fmt.Sprintf("%s-%d.test", s.name, i))); err != nil {
			return compiledSuite{}, err
		}
	}
	return compiledSuite{s.name, version, packages, environment}, nil
}

// on describes the control plane that a suite runs on.
type on struct {
	assets string // their directory
	label  string // in the log
	// controllers is COPPICE_CONTROLLERS; "" means the directory's controllers, regardless of the caller's
	// environment.
	controllers string
}

// try runs the tests of one of the packages of a suite.
func (c config) try(ctx context.Context, s compiledSuite, i int, on on) (measured, error) {
	p, label := &s.packages[i], on.label
	t := trial{
		p: p, assets: on.assets, timeout: c.timeout,
		environment: append(slices.Clone(s.environment), controllersVariable+"="+on.controllers),
		log:         filepath.Join(c.logs, fmt.Sprintf("%s-%d-%s.log", s.name, i, label)),
	}
	got, err := t.run(ctx, c.attempts)
	if err != nil {
		return got, fmt.Errorf("%s with %s: %w", p.path, label, err)
	}
	log.Printf("%s: %s with %s: %s", s.name, p.path, label, got)
	return got, nil
}

// tryControllers runs the suites with our assets and each of the values of COPPICE_CONTROLLERS, and
// prints the outcomes.
func (c config) tryControllers(ctx context.Context, work string, chosen []suite) error {
	assets, err := c.ownAssets(ctx, work)
	if err != nil {
		return err
	}
	for _, s := range chosen {
		compiled, err := c.compile(ctx, work, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for _, value := range c.controllers {
			for i := range compiled.packages {
				m, err := c.try(ctx, compiled, i, on{assets, value, value})
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				printOutcomes(os.Stdout, compiled.packages[i].path, value, m)
			}
		}
	}
	return nil
}

// printOutcomes prints the number of tests of a package that passed with some controllers, and the names
// of the others.
func printOutcomes(out io.Writer, path, controllers string, m measured) {
	passing := m.tests.count(passed)
	fmt.Fprintf(out, "%s, %s=%s: %d of %d tests pass, %d of them when they are run again\n",
		path, controllersVariable, controllers, passing, passing+m.tests.count(failed), m.again)
	for _, name := range slices.Sorted(maps.Keys(m.tests)) {
		if m.tests[name] == failed {
			fmt.Fprintf(out, "  fails: %s\n", strings.TrimPrefix(name, path+": "))
		}
	}
}
