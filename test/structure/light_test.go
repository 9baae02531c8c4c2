package structure

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Package collector is published as a module of its own, which adds one line to the go.mod of a project that
// requires client-go: everything that it needs is the standard library, this repository, or what client-go
// requires itself.
func TestTheLightLibraryNeedsWhatClientGoNeeds(t *testing.T) {
	allowed := requiredBy(t, "k8s.io/client-go")
	allowed = append(allowed, module, "k8s.io/client-go")
	for _, needed := range goList(t, "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./collector") {
		if !slices.Contains(allowed, needed) {
			t.Errorf("package collector needs %s, which client-go does not require: whoever requires the module would get it, too", needed)
		}
	}
	for _, other := range []string{"github.com/prometheus/client_golang", "golang.org/x/sync", "k8s.io/apiserver", "k8s.io/component-base"} {
		if slices.Contains(allowed, other) {
			t.Errorf("client-go requires %s: is the list of what it requires right?", other)
		}
	}
}

// requiredBy returns the modules that the go.mod of a module requires directly or indirectly.
func requiredBy(t *testing.T, module string) []string {
	t.Helper()
	mod, err := os.ReadFile(goList(t, "-m", "-f", "{{.GoMod}}", module)[0])
	if err != nil {
		t.Fatal(err)
	}
	var required []string
	for line := range strings.Lines(string(mod)) {
		if fields := strings.Fields(line); len(fields) >= 2 && strings.HasPrefix(line, "\t") {
			required = append(required, fields[0])
		}
	}
	if len(required) < 10 {
		t.Fatalf("%s requires %v only?", module, required)
	}
	return required
}

// goList returns the lines that go list prints, each once, in the root of the repository.
func goList(t *testing.T, arguments ...string) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"list"}, arguments...)...)
	command.Dir, command.Stderr = root, os.Stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", arguments, err)
	}
	lines := strings.Fields(string(output))
	slices.Sort(lines)
	return slices.Compact(lines)
}
