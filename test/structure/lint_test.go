package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostExceptions is the largest number of exceptions in all modules, tests included. A check that needs more is either
// not worth its exceptions, or belongs into the rules of .golangci.yml that name paths.
const mostExceptions = 80

// TestExceptionsAreOfLintersThatRun: an exception from a disabled linter is misleading, because no such check
// runs. Exceptions are few.
func TestExceptionsAreOfLintersThatRun(t *testing.T) {
	settings, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var enabled []string
	for _, match := range regexp.MustCompile(`(?m)^    - ([a-z]+)`).FindAllStringSubmatch(string(settings), -1) {
		enabled = append(enabled, match[1])
	}
	if !slices.Contains(enabled, "nolintlint") {
		t.Fatalf(".golangci.yml enables %v only", enabled)
	}
	exception := regexp.MustCompile(`//nolint:([a-z,]+)`)
	exceptions := 0
	for _, f := range everyGoFile(t) {
		for _, group := range f.ast.Comments {
			for _, comment := range group.List {
				match := exception.FindStringSubmatch(comment.Text)
				if match == nil {
					continue
				}
				exceptions++
				for name := range strings.SplitSeq(match[1], ",") {
					if !slices.Contains(enabled, name) {
						t.Errorf("%s is an exception from %s, which does not run", f.at(comment), name)
					}
				}
			}
		}
	}
	if exceptions == 0 {
		t.Error("no exception was found")
	}
	if exceptions > mostExceptions {
		t.Errorf("the code has %d exceptions from linters, want at most %d", exceptions, mostExceptions)
	}
}
