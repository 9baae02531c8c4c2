package structure

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rule is one numbered rule of docs/semantics.md.
type rule struct {
	number int
	title  string
	// status is the state that the document gives: "built", "built, except …", "not built …".
	status string
	// keepers are the directories of the packages that implement it, according to the document.
	keepers []string
}

func (r rule) String() string { return fmt.Sprintf("R%d %s", r.number, r.title) }

func (r rule) isBuilt() bool { return strings.HasPrefix(r.status, "built") }

var (
	ruleHeading = regexp.MustCompile(`^### R(\d+) (.+)$`)
	ruleStatus  = regexp.MustCompile(`^\*\*Status:\*\* (.+)$`)
	ruleKeepers = regexp.MustCompile(`\*\*Kept by:\*\* (.+)$`)
	quoted      = regexp.MustCompile("`([^`]+)`")
	// ruleTest is a test that names a rule: TestR7, TestR7_OwnerInOtherNamespace.
	ruleTest = regexp.MustCompile(`^TestR(\d+)($|_[A-Z])`)
	// anyRuleTest is a test that names a rule in any way.
	anyRuleTest = regexp.MustCompile(`^TestR_?\d`)
)

// rules reads the rules in the order of the document.
func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "semantics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []rule
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if match := ruleHeading.FindStringSubmatch(line); match != nil {
			number, err := strconv.Atoi(match[1])
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, rule{number: number, title: match[2]})
			continue
		}
		if len(found) == 0 {
			continue
		}
		last := &found[len(found)-1]
		if match := ruleStatus.FindStringSubmatch(line); match != nil {
			if last.status != "" {
				t.Errorf("%s has two lines of status", *last)
			}
			last.status = match[1]
		}
		if match := ruleKeepers.FindStringSubmatch(line); match != nil {
			for _, keeper := range quoted.FindAllStringSubmatch(match[1], -1) {
				last.keepers = append(last.keepers, keeper[1])
			}
		}
	}
	return found
}

// ruleTests finds the tests that are named after a rule, by its number.
func ruleTests(t *testing.T) map[int][]string {
	t.Helper()
	tests := map[int][]string{}
	for _, f := range goFiles(t) {
		if !f.isTest() {
			continue
		}
		for _, declaration := range f.ast.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil {
				continue
			}
			if match := ruleTest.FindStringSubmatch(function.Name.Name); match != nil {
				number, err := strconv.Atoi(match[1])
				if err != nil {
					t.Fatal(err)
				}
				tests[number] = append(tests[number], f.dir+"/"+f.name+": "+function.Name.Name)
			}
		}
	}
	return tests
}

// A test of a rule has the rule's number, an underscore, and what the test asserts, so that -run TestR12_ finds all tests
// of rule 12 and none of others.
func TestTestsOfRulesHaveOneForm(t *testing.T) {
	for _, f := range everyGoFile(t) {
		for _, declaration := range f.ast.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || !f.isTest() || function.Recv != nil {
				continue
			}
			if name := function.Name.Name; anyRuleTest.MatchString(name) && !ruleTest.MatchString(name) {
				t.Errorf("%s: %s names a rule in another form than TestR7 or TestR7_OwnerIsAbsent", f.at(function), name)
			}
		}
	}
}

// The contract and the tests refer to each other: a rule that is built has a test of its name,
// and no test names a rule that does not exist.
func TestEveryRuleHasATest(t *testing.T) {
	tests := ruleTests(t)
	known := map[int]bool{}
	for _, r := range rules(t) {
		known[r.number] = true
		if r.isBuilt() && len(tests[r.number]) == 0 {
			t.Errorf("%s is built and has no test: name one TestR%d…", r, r.number)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(tests)) {
		if !known[number] {
			t.Errorf("docs/semantics.md has no rule R%d, which is named by %s", number, strings.Join(tests[number], ", "))
		}
	}
}

// Rules keep their numbers: they are in order, without gaps, and each states how far it is built
// and where it lives.
func TestRulesAreWellFormed(t *testing.T) {
	found := rules(t)
	if len(found) == 0 {
		t.Fatal("docs/semantics.md has no rules")
	}
	for i, r := range found {
		if r.number != i+1 {
			t.Errorf("rule %d of the document is %s", i+1, r)
		}
		if !r.isBuilt() && !strings.HasPrefix(r.status, "not built") {
			t.Errorf("%s: status %q begins neither with built nor with not built", r, r.status)
		}
		if r.isBuilt() && len(r.keepers) == 0 {
			t.Errorf("%s is built and names no package that keeps it", r)
		}
		for _, keeper := range r.keepers {
			if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(keeper))); err != nil || !info.IsDir() {
				t.Errorf("%s is kept by %s, which is no package here", r, keeper)
			}
		}
	}
}
