package cli

import (
	"strings"
	"testing"
)

// TestConformanceLists: --list lists the checks of a rule without a request to a server.
func TestConformanceLists(t *testing.T) {
	atHome(t)
	got := run(t, "conformance", "--list", "--rule", "R13")
	if got.code != ExitOK || !strings.Contains(got.out, "OR-01 ") || strings.Contains(got.out, "NS-01 ") {
		t.Errorf("%+v", got)
	}
	all := run(t, "conformance", "--list", "--skip", "OR-")
	if strings.Contains(all.out, "OR-01 ") || !strings.Contains(all.out, "NS-01 ") {
		t.Errorf("%+v", all)
	}
}

// TestConformanceUsage: for an invalid command line, and for a server that does not answer, the
// exit code is the one of a usage error.
func TestConformanceUsage(t *testing.T) {
	atHome(t)
	for _, args := range [][]string{
		{"--rule", "R1000"},
		{"--run", "("},
		{"--run", "nothing has this name"},
		{"--output", "table of contents"},
		{"--upstream", "somehow"},
		{"--controllers", "gc,scheduler"},
		{"--timeout", "0s"},
		{"--parallel", "0"},
		{"--server", "http://127.0.0.1:1"},
		{"--kubeconfig", "/nowhere"},
		{"something"},
	} {
		if got := run(t, append([]string{"conformance"}, args...)...); got.code != ExitUsage || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
