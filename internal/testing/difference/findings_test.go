package difference

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRecordKeepsExamples checks that a record is written as it was read, and that the examples of new findings are added.
func TestRecordKeepsExamples(t *testing.T) {
	const header = "# To be mended.\n"
	const known = "Job: spec.b differs\nPod: spec.a differs\n  spec.a: ours 1, theirs 2 in create Pod\n"
	file := filepath.Join(t.TempDir(), "record.txt")
	if err := os.WriteFile(file, []byte(header+known), 0o600); err != nil {
		t.Fatal(err)
	}
	record, err := ReadRecord(file)
	if err != nil {
		t.Fatal(err)
	}
	f := NewFindings(nil, record)
	f.found["Node: spec.c differs"] = &finding{count: 1, examples: []string{"spec.c: ours 1, theirs 2\n    in create Node"}}
	if err := f.Rewrite(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	want := header + "Job: spec.b differs\nNode: spec.c differs\n  spec.c: ours 1, theirs 2 in create Node\nPod: spec.a differs\n  spec.a: ours 1, theirs 2 in create Pod\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	f.Whole = true
	if err := f.Rewrite(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != header+"Node: spec.c differs\n  spec.c: ours 1, theirs 2 in create Node\n" {
		t.Errorf("differences that are no more stay:\n%s", got)
	}
}
