package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// TestParseTests: lines that tests print themselves do not count; a test that does not end fails.
func TestParseTests(t *testing.T) {
	for _, c := range []struct {
		name, output string
		want         outcomes
	}{
		{
			"one of each",
			"\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== RUN   TestB\nlog\x16--- FAIL: TestB (1.20s)\n\x16=== RUN   TestC\n\x16--- SKIP: TestC (0.00s)\n",
			outcomes{"TestA": passed, "TestB": failed, "TestC": skipped},
		},
		{"printed by a test", "\x16=== RUN   TestA\n--- FAIL: TestX (0.00s)\n\x16--- PASS: TestA (0.00s)\n", outcomes{"TestA": passed}},
		{"panic", "\x16=== RUN   TestA\npanic: oh\n", outcomes{"TestA": failed}},
		{
			"subtests",
			"\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n\x16=== RUN   TestA/x/y\n\x16    --- PASS: TestA/x/y (0.00s)\n\x16    --- PASS: TestA/x (0.00s)\n\x16--- PASS: TestA (0.00s)\n",
			outcomes{"TestA/x/y": passed},
		},
		{
			"the subtest fails",
			"\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n\x16    --- FAIL: TestA/x (0.00s)\n\x16--- FAIL: TestA (0.00s)\n",
			outcomes{"TestA/x": failed},
		},
		{
			"only the parent fails",
			"\x16=== RUN   TestA\n\x16=== RUN   TestA/x\n\x16    --- PASS: TestA/x (0.00s)\n\x16--- FAIL: TestA (0.00s)\n",
			outcomes{"TestA": failed, "TestA/x": passed},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parseTests([]byte(c.output)); !maps.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestAddSpecs: a failed spec takes the place of the test that ran it, and all specs of a name must pass.
func TestAddSpecs(t *testing.T) {
	report := `[{"SpecReports": [
		{"ContainerHierarchyTexts": ["Client"], "LeafNodeText": "gets", "LeafNodeType": "It", "State": "passed"},
		{"ContainerHierarchyTexts": ["Client"], "LeafNodeText": "gets", "LeafNodeType": "It", "State": "failed"},
		{"ContainerHierarchyTexts": ["Client"], "LeafNodeText": "lists", "LeafNodeType": "It", "State": "timedout"},
		{"ContainerHierarchyTexts": ["Client"], "LeafNodeText": "later", "LeafNodeType": "It", "State": "pending"},
		{"LeafNodeText": "", "LeafNodeType": "BeforeSuite", "State": "passed"},
		{"LeafNodeText": "", "LeafNodeType": "AfterSuite", "State": "failed"}]}]`
	got := outcomes{"TestSuite": failed, "TestOther": passed}
	if err := got.addSpecs([]byte(report), "TestSuite"); err != nil {
		t.Fatal(err)
	}
	want := outcomes{"TestOther": passed, "Client gets": failed, "Client lists": failed, "Client later": skipped, "AfterSuite": failed}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestRunnerOfSpecsFailsForAnotherReasonOnly: the test that runs specs counts only if it fails for another reason.
func TestRunnerOfSpecsFailsForAnotherReasonOnly(t *testing.T) {
	output := "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\n\x16=== RUN   TestSpecs\nRunning Suite: S\n\x16--- %s: TestSpecs (0.00s)\n\x16=== RUN   TestB\n"
	for _, c := range []struct {
		result, state string
		want          outcomes
	}{
		{"PASS", "passed", outcomes{"TestA": passed, "TestB": failed, "s": passed}},
		{"FAIL", "failed", outcomes{"TestA": passed, "TestB": failed, "s": failed}},
		{"FAIL", "passed", outcomes{"TestA": passed, "TestB": failed, "s": passed, "TestSpecs": failed}},
	} {
		text := fmt.Appendf(nil, output, c.result)
		got := parseTests(text)
		report := fmt.Sprintf(`[{"SpecReports": [{"LeafNodeText": "s", "LeafNodeType": "It", "State": %q}]}]`, c.state)
		if err := got.addSpecs([]byte(report), runnerOf(text)); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s, specs %s: got %v, want %v", c.result, c.state, got, c.want)
		}
	}
}

// TestParsePackages: packages whose tests use envtest, be it compiled anew for them.
func TestParsePackages(t *testing.T) {
	list := `{"ImportPath": "example.com/a", "Dir": "/a", "Deps": ["sigs.k8s.io/controller-runtime/pkg/envtest"]}
		{"ImportPath": "example.com/b", "Dir": "/b"}
		{"ImportPath": "example.com/b.test", "Deps": ["sigs.k8s.io/controller-runtime/pkg/envtest [example.com/b.test]", "github.com/onsi/ginkgo/v2"]}
		{"ImportPath": "example.com/c", "Dir": "/c"}
		{"ImportPath": "example.com/c.test", "Deps": ["sigs.k8s.io/controller-runtime/pkg/envtester"]}`
	got, err := parsePackages([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	if want := (testPackage{path: "example.com/b", dir: "/b", ginkgo: true}); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := parsePackages([]byte(strings.ReplaceAll(list, "controller-runtime", "other"))); err == nil {
		t.Error("no package is left, and there is no error")
	}
}
