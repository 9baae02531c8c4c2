package audit_test

import (
	"os"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/tools/audit"
)

// TestEachCodeIsDocumented: the table in docs/semantics.md has a row with each code, and its severity.
func TestEachCodeIsDocumented(t *testing.T) {
	semantics, err := os.ReadFile("../../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range audit.Rules() {
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
