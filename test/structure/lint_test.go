package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestExceptionsAreOfLintersThatRun: an exception from a disabled linter is misleading, because no such check
// runs.
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
	checked := 0
	for _, f := range goFiles(t) {
		for _, group := range f.ast.Comments {
			for _, comment := range group.List {
				match := exception.FindStringSubmatch(comment.Text)
				if match == nil {
					continue
				}
				checked++
				for name := range strings.SplitSeq(match[1], ",") {
					if !slices.Contains(enabled, name) {
						t.Errorf("%s/%s has an exception from %s, which does not run", f.dir, f.name, name)
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no exception was found")
	}
}
