package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestPluginOfKubectl: under the plugin's names, help and completion are for kubectl coppice.
func TestPluginOfKubectl(t *testing.T) {
	for _, test := range []struct {
		program, line string
		want, not     string
	}{
		{"/usr/bin/kubectl-coppice", "explain --help", "kubectl coppice explain namespace/shop", "  coppice "},
		{"kubectl-coppice.exe", "explain --help", "kubectl coppice explain [", "  coppice "},
		{"kubectl-coppice", "explain --bogus", "see kubectl coppice explain --help", "see coppice"},
		{"/usr/bin/kubectl_complete-coppice", "prev", "preview\tPredict the outcome", "Usage"},
		{"/usr/bin/coppice", "explain --help", "  coppice explain namespace/shop", "kubectl coppice"},
	} {
		var out bytes.Buffer
		RunNamed(t.Context(), test.program, strings.Fields(test.line), Streams{In: strings.NewReader(""), Out: &out, Err: &out})
		if text := out.String(); !strings.Contains(text, test.want) || strings.Contains(text, test.not) {
			t.Errorf("%s %s: got\n%s\nwant %q, and not %q", test.program, test.line, text, test.want, test.not)
		}
	}
}
