package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestAuditUsage: an invalid command line is an error before any request.
func TestAuditUsage(t *testing.T) {
	atHome(t)
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pods"}, ExitUsage, "takes no arguments"},
		{[]string{"-o", "xml"}, ExitUsage, `"xml" is unknown: choose one of table, json, yaml, sarif, junit`},
		{[]string{"--yes"}, ExitUsage, "--yes is for --fix"},
		{[]string{"--terminating", "0s"}, ExitUsage, "--terminating must be more than 0"},
		{[]string{"--baseline", missing}, ExitFailed, "--write-baseline makes one"},
	} {
		got := run(t, append([]string{"audit"}, test.args...)...)
		if got.code != test.code || !strings.Contains(got.err, test.want) {
			t.Errorf("%q: exit code %d, %s; want %d, %s", test.args, got.code, got.err, test.code, test.want)
		}
	}
}

// TestOnlyYesConfirms: only "yes" confirms.
func TestOnlyYesConfirms(t *testing.T) {
	for input, want := range map[string]bool{"yes\n": true, "yes": true, "y\n": false, "no\n": false, "": false, "\nyes\n": false} {
		if got := confirm(Streams{In: strings.NewReader(input), Err: new(strings.Builder)}); got != want {
			t.Errorf("%q: %v", input, got)
		}
	}
}
