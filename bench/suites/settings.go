package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// controllersVariable names the controllers that the assets of coppice run, and faultsVariable the faults that their
// clients meet.
const (
	controllersVariable = "COPPICE_CONTROLLERS"
	faultsVariable      = "COPPICE_FAULTS"
)

// setting is a variable of the assets of coppice, and its value. The zero value sets none.
type setting struct{ variable, value string }

// String returns the setting as in an environment.
func (s setting) String() string { return s.variable + "=" + s.value }

// settingsOf returns a setting for each of the values, with spaces between them.
func settingsOf(variable, values string) (all []setting) {
	for value := range strings.FieldsSeq(values) {
		all = append(all, setting{variable, value})
	}
	return all
}

// environment returns the variables of our assets, with one setting.
func (s setting) environment() []string {
	all := []string{controllersVariable + "=", faultsVariable + "="}
	if s.variable != "" {
		all = append(all, s.String())
	}
	return all
}

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
	if err := s.complete(ctx, dir); err != nil {
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
	// setting is that of our assets, regardless of the caller's environment.
	setting setting
}

// try runs the tests of one of the packages of a suite.
func (c config) try(ctx context.Context, s compiledSuite, i int, on on) (measured, error) {
	p, label := &s.packages[i], on.label
	t := trial{
		p: p, assets: on.assets, timeout: c.timeout,
		environment: slices.Concat(s.environment, on.setting.environment()),
		log:         filepath.Join(c.logs, fmt.Sprintf("%s-%d-%s.log", s.name, i, label)),
	}
	got, err := t.run(ctx, c.attempts)
	if err != nil {
		return got, fmt.Errorf("%s with %s: %w", p.path, label, err)
	}
	log.Printf("%s: %s with %s: %s", s.name, p.path, label, got)
	return got, nil
}

// trySettings runs the suites with our assets and each of the settings, and prints the outcomes. A package of which no
// test ran, because the setting does not let its suite begin, is an error at the end.
func (c config) trySettings(ctx context.Context, work string, chosen []suite) error {
	assets, err := c.ownAssets(ctx, work)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range chosen {
		compiled, err := c.compile(ctx, work, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for _, set := range c.settings {
			for i := range compiled.packages {
				m, err := c.try(ctx, compiled, i, on{assets, set.value, set})
				if err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
					log.Print(err)
					continue
				}
				printOutcomes(os.Stdout, compiled.packages[i].path, set, m)
			}
		}
	}
	return errors.Join(failed...)
}

// printOutcomes prints the number of tests of a package that passed with a setting, and the names of the others.
func printOutcomes(out io.Writer, path string, set setting, m measured) {
	passing := m.tests.count(passed)
	fmt.Fprintf(out, "%s, %s: %d of %d tests pass, %d of them when they are run again\n",
		path, set, passing, passing+m.tests.count(failed), m.again)
	for _, name := range slices.Sorted(maps.Keys(m.tests)) {
		if m.tests[name] == failed {
			fmt.Fprintf(out, "  fails: %s\n", strings.TrimPrefix(name, path+": "))
		}
	}
}
