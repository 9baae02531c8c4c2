package envtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// oldestNode is the oldest major version of node that version 2.0.0 of the port runs on: its dependencies need 20.
const oldestNode = 20

// Suites in other languages have the same control plane, by their port of envtest: owned objects
// are collected, and no process or file stays.
func TestTypeScript(t *testing.T) {
	needNode(t)
	// What npm installs is not for the tests that read all documents here.
	dir := filepath.Join(t.TempDir(), "typescript")
	if err := os.CopyFS(dir, os.DirFS("typescript")); err != nil {
		t.Fatal(err)
	}
	// The registry comes from the machine's configuration.
	runIn(t, dir, nil, "npm", "ci")
	// The suite finds this directory empty at the end.
	temporary := t.TempDir()
	environment := []string{"TMPDIR=" + temporary, "KUBEBUILDER_ASSETS=" + collectingAssets}
	t.Log(runIn(t, dir, environment, "node", "--test"))
	needProcesses(t)
	if left := processesOf(t, temporary); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// runIn runs a command in a directory, and returns its output.
func runIn(t *testing.T, dir string, environment []string, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = dir, append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command.Args, " "), err, output)
	}
	return string(output)
}

// needNode skips on a developer's machine and fails in CI, which installs what the tests need.
func needNode(t *testing.T) {
	t.Helper()
	missing := func(what string) {
		t.Helper()
		if os.Getenv("CI") != "" {
			t.Fatalf("%s, and CI is to install it (see .ci/run)", what)
		}
		t.Skip(what)
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			missing(name + " is missing")
		}
	}
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if number, err := strconv.Atoi(major); err != nil || number < oldestNode {
		missing("node is " + strings.TrimSpace(string(version)) + ", which is too old")
	}
}
