// Package suites runs the integration tests of a client library against coppice: controller-runtime's
// tests, unchanged, with `coppice up` in place of kube-apiserver and etcd. They expect a control
// plane as envtest starts it: an API server alone, with no controllers and no nodes.
package suites

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const library = "sigs.k8s.io/controller-runtime/pkg/"

// suite is a package of the library.
type suite struct {
	path string
	// fails are the tests that fail, by the reason. Each must fail, and no other.
	fails map[string]string
	// races are the ends of the names of tests whose result depends on the scheduler, by the reason. Their failure does not count.
	races map[string]string
}

const syncsFirst = "they expect that an informer has not synced by the line after its start, which a list of 2 ms can win on a busy machine"

var suites = []suite{
	{path: "client"},
	{path: "client/apiutil", fails: map[string]string{
		"TestLazyRestMapperProvider/aggregatedDiscovery=false/": "they start a server without the feature gate AggregatedDiscoveryEndpoint, which a server that runs cannot have",
	}},
	{path: "cache", races: map[string]string{
		"with structured objects should return an error when context is cancelled": syncsFirst,
		"should allow for get informer to be cancelled":                            syncsFirst,
	}},
	{path: "builder"},
	{path: "manager"},
	{path: "cluster"},
	{path: "controller"},
	{path: "controller/controllerutil"},
	{path: "source"},
	{path: "webhook"},
	{path: "internal/controller"},
	{path: "internal/recorder"},
}

var only = flag.String("suite", "", "run this suite alone, such as client/apiutil")

// TestControllerRuntime runs the suites one after the other, each with a server of its own.
func TestControllerRuntime(t *testing.T) {
	binary := build(t)
	for _, s := range suites {
		if *only != "" && *only != s.path {
			continue
		}
		t.Run(s.path, func(t *testing.T) { s.run(t, serve(t, binary)) })
	}
}

// build compiles coppice.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "coppice")
	command := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/coppice")
	command.Dir = filepath.Join("..", "..")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build coppice: %v\n%s", err, output)
	}
	return binary
}

// serve starts a server that runs until the test ends, and returns its kubeconfig.
func serve(t *testing.T, binary string) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	server := exec.CommandContext(t.Context(), binary, "up", "--ephemeral", "--secure-port=0", "--controllers=", "--nodes=0", "--write-kubeconfig="+kubeconfig)
	// The test's context ends before its clean-up.
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.WaitDelay = 20 * time.Second
	output := &ready{found: make(chan struct{})}
	server.Stdout, server.Stderr = output, output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	t.Cleanup(func() {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the server: %v", err)
		}
	})
	select {
	case <-output.found:
	case err := <-ended:
		ended <- nil
		t.Fatalf("the server did not start: %v", err)
	case <-time.After(3 * time.Minute):
		t.Fatal("the server does not become ready")
	}
	return kubeconfig
}

// ready waits for the output line with which the server reports that it is ready.
type ready struct {
	seen  []byte
	found chan struct{}
}

// Write implements io.Writer. One goroutine calls it.
func (r *ready) Write(data []byte) (int, error) {
	if r.found != nil {
		if r.seen = append(r.seen, data...); bytes.Contains(r.seen, []byte("\nready ")) {
			close(r.found)
			r.seen, r.found = nil, nil
		}
	}
	return len(data), nil
}

// results are the names of tests, and whether they passed.
type results struct {
	passed  map[string]bool
	skipped int
}

// run runs the tests of a suite and compares the failed ones with the list.
func (s suite) run(t *testing.T, kubeconfig string) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=10m", "-json", library+s.path)
	// Beside other load, a second, Gomega's default, is too short for an Event to be written, or a goroutine to end.
	command.Env = append(os.Environ(), "USE_EXISTING_CLUSTER=true", "KUBECONFIG="+kubeconfig, "GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT=30s")
	if s.isGinkgo(t) {
		command.Args = append(command.Args, "-ginkgo.json-report="+report)
	}
	output, failure := command.Output()
	r := results{passed: map[string]bool{}}
	if err := errors.Join(r.addTests(output), r.addSpecs(report)); err != nil {
		t.Fatal(err)
	}
	if len(r.passed) == 0 {
		t.Fatalf("no test ran: %v\n%s", failure, output)
	}
	failed := 0
	met := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.passed)) {
		if r.passed[name] {
			continue
		}
		if reason := s.race(name); reason != "" {
			t.Logf("%s failed, which does not count: %s", name, reason)
			r.skipped++
			delete(r.passed, name)
			continue
		}
		failed++
		prefix := s.listed(name)
		met[prefix] = true
		if prefix == "" {
			t.Errorf("%s fails, and is not listed", name)
		}
	}
	for name, reason := range s.fails {
		if !met[name] {
			t.Errorf("%s is listed as failing (%s), and does not", name, reason)
		}
	}
	t.Logf("%s: %d passed, %d failed (%d of them listed), %d skipped", s.path, len(r.passed)-failed, failed, len(s.fails), r.skipped)
}

// isGinkgo reports whether the tests of a suite include specs, whose flags the binary then has.
func (s suite) isGinkgo(t *testing.T) bool {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-test", "-deps", library+s.path)
	output, err := list.Output()
	if err != nil {
		t.Fatalf("list the packages of %s: %v", s.path, err)
	}
	return bytes.Contains(output, []byte("github.com/onsi/ginkgo/v2\n"))
}

// listed returns the list's entry for a test, or "".
func (s suite) listed(name string) string {
	for prefix := range s.fails {
		if strings.HasPrefix(name, prefix) {
			return prefix
		}
	}
	return ""
}

// race returns why a test may fail, or "".
func (s suite) race(name string) string {
	for suffix, reason := range s.races {
		if strings.HasSuffix(name, suffix) {
			return reason
		}
	}
	return ""
}

// addTests adds the tests of package testing that have no subtests; a test with subtests only repeats
// their results. A suite of specs is one test without subtests.
func (r *results) addTests(output []byte) error {
	ended := map[string]string{}
	decoder := json.NewDecoder(bytes.NewReader(output))
	for decoder.More() {
		var event struct{ Action, Test string }
		if err := decoder.Decode(&event); err != nil {
			return fmt.Errorf("decode the output of go test: %w", err)
		}
		if event.Test != "" && (event.Action == "pass" || event.Action == "fail" || event.Action == "skip") {
			ended[event.Test] = event.Action
		}
	}
	for name, action := range ended {
		hasSubtests := func(other string) bool { return strings.HasPrefix(other, name+"/") }
		switch {
		case slices.ContainsFunc(slices.Collect(maps.Keys(ended)), hasSubtests):
		case action == "skip":
			r.skipped++
		default:
			r.passed[name] = action == "pass"
		}
	}
	return nil
}

// addSpecs adds the specs of a report of ginkgo, if there is one. The test that ran them fails if one
// of them does, and then does not count.
func (r *results) addSpecs(report string) error {
	data, err := os.ReadFile(report)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText            string
			LeafNodeType            string
			State                   string
		}
	}
	if err := json.Unmarshal(data, &reports); err != nil {
		return fmt.Errorf("decode the report of the specs: %w", err)
	}
	failed := false
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			switch {
			case spec.State == "pending" || spec.State == "skipped":
				r.skipped++
			case spec.LeafNodeType == "It" || spec.State != "passed":
				before, repeated := r.passed[name]
				r.passed[name] = spec.State == "passed" && (before || !repeated)
				failed = failed || spec.State != "passed"
			}
		}
	}
	if failed {
		maps.DeleteFunc(r.passed, func(name string, passed bool) bool { return !passed && goTest.MatchString(name) })
	}
	return nil
}

// goTest are the names of tests of package testing, which specs do not have.
var goTest = regexp.MustCompile(`^Test\w+$`)
