package cli

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A file is named after its command, or it is one of the shared files of the package comment.
func TestFilesAreNamedAfterCommands(t *testing.T) {
	t.Parallel()
	families := []string{"root", "flags", "log", "cluster", "targets", "server", "kubeconfig"}
	for _, c := range newRoot(Streams{}).Commands() {
		families = append(families, c.Name())
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, isCode := strings.CutSuffix(e.Name(), ".go")
		if !isCode || strings.HasSuffix(name, "_test") {
			continue
		}
		family, _, _ := strings.Cut(name, "_")
		if !slices.Contains(families, family) {
			t.Errorf("%s belongs to no command, and is not among the shared files", e.Name())
		}
	}
}
