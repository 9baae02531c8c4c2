//go:build unix

package system

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestKubeconfigKeepsItsOwner checks that root does not take the kubeconfig of another user away from that user.
func TestKubeconfigKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can write files of others")
	}
	const user, group = 1234, 2345
	path := filepath.Join(t.TempDir(), "config")
	if err := writeKubeconfig(path, ours("https://127.0.0.1:1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, user, group); err != nil {
		t.Fatal(err)
	}
	if err := writeKubeconfig(path, ours("https://127.0.0.1:2")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); owner.Uid != user || owner.Gid != group || info.Mode().Perm() != 0o600 {
		t.Errorf("owner %d, group %d, mode %o", owner.Uid, owner.Gid, info.Mode().Perm())
	}
	if got := read(t, path).Clusters[ContextName].Server; got != "https://127.0.0.1:2" {
		t.Errorf("server %s", got)
	}
}
