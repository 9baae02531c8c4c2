package audit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/tools/audit"
)

// TestEachCodeIsDocumentedAndFound: the table in docs/semantics.md has a row with each code, and its severity, and a
// test of this package expects a finding with it.
func TestEachCodeIsDocumentedAndFound(t *testing.T) {
	semantics, err := os.ReadFile("../../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := ""
	for _, name := range []string{"audit_test.go", "controllers_test.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(text)
	}
	for _, r := range audit.Rules() {
		if !strings.Contains(tests, string(r.Code)+" ") {
			t.Errorf("no test expects a finding with the code %s", r.Code)
		}
		documented := ""
		for row := range strings.Lines(string(semantics)) {
			cells := strings.Split(row, "|")
			if len(cells) > 3 && strings.Contains(cells[1], "`"+string(r.Code)+"`") {
				documented = strings.TrimSpace(cells[2])
			}
		}
		if documented != string(r.Severity) {
			t.Errorf("docs/semantics.md gives %s the severity %q; want %q", r.Code, documented, r.Severity)
		}
	}
}
