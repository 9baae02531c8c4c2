package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// A command line that cannot work is refused with one line, before anything is asked.
func TestNodeFlags(t *testing.T) {
	atHome(t)
	t.Setenv("KUBECONFIG", "")
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"node more":                  {ExitUsage, "takes no arguments"},
		"node --node-ip here":        {ExitUsage, `--node-ip "here" is not an IP address`},
		"node --runtime docker":      {ExitUsage, `--runtime docker: choose simulated or cri`},
		"node --lease-duration 10ms": {ExitUsage, "--lease-duration 10ms is less than 1s"},
		"node --name A_b":            {ExitUsage, `--name "A_b" cannot be the name of a node`},
		"node --log-level loud":      {ExitUsage, "--log-level"},
		"node":                       {ExitFailed, "no API server is named"},
		"node --kubeconfig " + filepath.Join("no", "file"): {ExitFailed, "no such file"},
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), strings.Fields(line), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != want.code || !strings.Contains(errs.String(), want.says) || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("coppice %s: exit code %d, %q; want %d and a line that says %q", line, code, errs.String(), want.code, want.says)
		}
	}
}
