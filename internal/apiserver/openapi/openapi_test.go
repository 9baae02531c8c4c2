package openapi

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const generated = "zz_generated.openapi.go"

// TestGeneratedDefinitionsAreCurrent runs the command of generate.go, which takes about ten seconds, and compares the
// result: a change of k8s.io/api needs new definitions.
func TestGeneratedDefinitionsAreCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the generator")
	}
	dir := t.TempDir()
	command := strings.Fields(find(t, "generate.go", `(?m)^//go:generate (.+)$`))
	output := slices.Index(command, "--output-dir") + 1
	if output == 0 {
		t.Fatalf("no --output-dir in %s", command)
	}
	command[output] = dir
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(filepath.Join(dir, generated))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is not what the generator makes: run go generate ./internal/apiserver/openapi", generated)
	}
}

// TestGeneratorVersion: the generator has the same version as the k8s.io/kube-openapi that reads
// the definitions.
func TestGeneratorVersion(t *testing.T) {
	const version = `(?m)^\s*k8s\.io/kube-openapi (\S+)`
	tool, reader := find(t, "../../../tools/go.mod", version), find(t, "../../../go.mod", version)
	if tool != reader {
		t.Errorf("tools/go.mod has the generator at %s, go.mod has k8s.io/kube-openapi %s", tool, reader)
	}
}

// find returns the submatch of a pattern in a file.
func find(t *testing.T, file, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(pattern).FindSubmatch(text)
	if match == nil {
		t.Fatalf("%s has nothing like %s", file, pattern)
	}
	return string(match[1])
}
