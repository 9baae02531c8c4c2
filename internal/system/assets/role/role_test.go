package role_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

func TestRoleIsTheNameOfTheProgram(t *testing.T) {
	for path, want := range map[string]role.Role{
		"/usr/local/kubebuilder/bin/kube-apiserver": role.APIServer, "etcd": role.Etcd, "./kubectl": role.Kubectl,
		"kube-apiserver.exe": role.APIServer, "ETCD.EXE": role.Etcd,
		"coppice": role.None, "/kubectl/coppice": role.None, "kubectl-coppice": role.None, "": role.None,
	} {
		if got := role.Of(path); got != want {
			t.Errorf("%q is %q, want %q", path, got, want)
		}
	}
}

// Test frameworks search for flags at the beginning of lines.
func TestHelpHasEachFlagAtTheBeginningOfALine(t *testing.T) {
	for flag, want := range map[string]bool{
		"insecure-port": false, "no-such-flag": false,
		"etcd-servers": true, "cert-dir": true, "client-ca-file": true, "service-account-signing-key-file": true, "allow-privileged": true, "runtime-config": true, "vmodule": true,
	} {
		if got := regexp.MustCompile(`(?m)^\s*--` + flag + `\b`).MatchString(role.Help()); got != want {
			t.Errorf("the help has --%s: %t", flag, got)
		}
	}
}

func TestFlagsAreUniqueAndHaveATextOrAReason(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range role.Flags() {
		if f.Name == "" || seen[f.Name] || (f.Usage == "") == (f.Idle == "") || strings.TrimSpace(f.Name) != f.Name {
			t.Errorf("%+v", f)
		}
		seen[f.Name] = true
	}
}

// A process with --help responds before it does anything else.
func TestHelpOfProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	asset := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.Symlink(self, asset); err != nil {
		t.Skip("no symbolic links:", err)
	}
	output, err := exec.CommandContext(t.Context(), asset, "--etcd-servers=http://127.0.0.1:1", "--help").Output()
	if err != nil || !bytes.Equal(output, []byte(role.Help())) {
		t.Errorf("%v: %s", err, output)
	}
}
