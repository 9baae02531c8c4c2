package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// outcome is the outcome of a test.
type outcome int

const (
	missing outcome = iota // it did not run
	failed
	skipped
	passed
)

func (o outcome) String() string {
	return [...]string{"does not run", "fails", "is skipped", "passes"}[o]
}

// outcomes maps the package and name of a test to its outcome.
type outcomes map[string]outcome

// count returns the number of tests with an outcome.
func (o outcomes) count(which outcome) int {
	n := 0
	for _, got := range o {
		if got == which {
			n++
		}
	}
	return n
}

// parsePackages reads the output of go list -test: the packages whose tests use envtest.
func parsePackages(output []byte) ([]testPackage, error) {
	var found []testPackage
	dirs := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct {
			ImportPath, Dir string
			Deps            []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("decode the list of packages: %w", err)
		}
		tested, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest {
			dirs[p.ImportPath] = p.Dir
			continue
		}
		uses := func(path string) bool {
			// A package that is recompiled for the test has the test's name after its own.
			return slices.ContainsFunc(p.Deps, func(d string) bool { return d == path || strings.HasPrefix(d, path+" [") })
		}
		if uses(envtestPackage) {
			found = append(found, testPackage{path: tested, ginkgo: uses(ginkgoPackage)})
		}
	}
	for i := range found {
		found[i].dir = dirs[found[i].path]
	}
	if len(found) == 0 {
		return nil, errors.New("no tests use envtest")
	}
	return found, nil
}

// began and ended match lines of a test binary with -test.v=test2json: the first character
// distinguishes them from the output of tests.
var (
	began = regexp.MustCompile(`\x16=== RUN +(\S+)`)
	ended = regexp.MustCompile(`\x16 *--- (PASS|FAIL|SKIP): (\S+) \(`)
	// current matches the line that names the test whose output follows.
	current = regexp.MustCompile(`\x16=== \w+ +(\S+)`)
)

// parseTests reads the output of a test binary. Of a test with subtests, only the subtests count,
// unless the test fails and no subtest does. A test that does not end fails.
func parseTests(output []byte) outcomes {
	all := outcomes{}
	for _, match := range began.FindAllSubmatch(output, -1) {
		all[string(match[1])] = failed
	}
	for _, match := range ended.FindAllSubmatch(output, -1) {
		all[string(match[2])] = map[string]outcome{"PASS": passed, "FAIL": failed, "SKIP": skipped}[string(match[1])]
	}
	leaves := maps.Clone(all)
	for name := range all {
		for parent := name; strings.Contains(parent, "/"); {
			parent = parent[:strings.LastIndexByte(parent, '/')]
			if all[parent] != failed || all[name] == failed {
				delete(leaves, parent)
			}
		}
	}
	return leaves
}

// specsBegin begins the output of a test that runs specs.
const specsBegin = "Running Suite: "

// runnerOf returns the test that ran the specs: the last one that was named before they began.
func runnerOf(output []byte) string {
	before, _, found := bytes.Cut(output, []byte(specsBegin))
	named := current.FindAllSubmatch(before, -1)
	if !found || len(named) == 0 {
		return ""
	}
	return string(named[len(named)-1][1])
}

// addSpecs adds the specs of a report of ginkgo. The test that ran them only counts if it fails and
// no spec does. Specs with the same name count as one, which passes if all of them pass.
func (o outcomes) addSpecs(report []byte, runner string) error {
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText            string
			LeafNodeType            string
			State                   string
		}
	}
	if err := json.Unmarshal(report, &reports); err != nil {
		return fmt.Errorf("decode the report of the specs: %w", err)
	}
	specs := outcomes{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			got := failed
			switch spec.State {
			case "passed":
				got = passed
			case "pending", "skipped":
				got = skipped
			}
			if spec.LeafNodeType != "It" && got != failed {
				continue
			}
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			if name == "" {
				name = spec.LeafNodeType
			}
			if before, repeated := specs[name]; repeated {
				got = min(before, got)
			}
			specs[name] = got
		}
	}
	if o[runner] != failed || specs.count(failed) > 0 {
		delete(o, runner)
	}
	maps.Copy(o, specs)
	return nil
}
