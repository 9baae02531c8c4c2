package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

// stdout has only the path, so that a shell can use it.
func TestAssetsPrintsOnlyThePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "assets")
	got := run(t, "assets", "--dir", dir)
	if got.code != ExitOK || got.out != dir+"\n" || got.err != "" {
		t.Fatalf("%+v", got)
	}
	for _, r := range role.All() {
		if info, err := os.Stat(filepath.Join(dir, string(r))); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("%s: %v, %v", r, info, err)
		}
	}
	if got := run(t, "assets", "--dir", dir, "--kubernetes", "1.20"); got.code != ExitUsage || !strings.Contains(got.err, "--kubernetes: ") {
		t.Errorf("%+v", got)
	}
	if got := run(t, "assets", "--dir", filepath.Join(dir, "etcd", "below")); got.code != ExitFailed || got.out != "" || !strings.Contains(got.err, "--dir") {
		t.Errorf("%+v", got)
	}
}

func TestRunAsAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"version":          {[]string{"--version"}, ExitOK, "Kubernetes v1.", ""},
		"an older version": {[]string{"--version", "--emulated-version=1.35"}, ExitOK, "Kubernetes v1.35.4", ""},
		"an unknown flag":  {[]string{"--no-such-flag"}, ExitFailed, "", "kube-apiserver: unknown flag: --no-such-flag; see kube-apiserver --help\n"},
		"a gate's nothing": {[]string{"--feature-gates=WatchList=perhaps"}, ExitFailed, "", "kube-apiserver: --feature-gates WatchList=perhaps is neither true nor false; see kube-apiserver --help\n"},
	} {
		var out, err strings.Builder
		code := RunAs(t.Context(), role.APIServer, test.args, Streams{In: strings.NewReader(""), Out: &out, Err: &err})
		if code != test.code || !strings.HasPrefix(out.String(), test.out) || err.String() != test.err {
			t.Errorf("%s: %d %q %q", name, code, out.String(), err.String())
		}
	}
}

func TestSetFeatureGates(t *testing.T) {
	notes, err := setFeatureGates(map[string]bool{"NoSuchGate": true, "OtherGate": false})
	if err != nil || len(notes) != 2 || !strings.Contains(notes[0], "NoSuchGate has no effect") {
		t.Errorf("%q, %v", notes, err)
	}
}

func TestLevelOf(t *testing.T) {
	for verbosity, want := range map[int]string{0: "warn", 1: "warn", 2: "info", 3: "info", 4: "debug", 10: "debug"} {
		if got := levelOf(verbosity); got != want {
			t.Errorf("-v=%d is %s, want %s", verbosity, got, want)
		}
	}
}
