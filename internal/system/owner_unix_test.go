//go:build unix

package system

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The users of the tests besides root.
const (
	alice = 1234
	bob   = 1235
)

// onlyRoot skips a test that needs files of several users.
func onlyRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can write files of others")
	}
}

// homes returns a directory of root with directories of alice and bob, and with etc of root. /tmp itself does not do: everybody
// may write there.
func homes(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	for name, user := range map[string]int{"alice": alice, "bob": bob, "etc": 0} {
		mustDo(t, os.Mkdir(filepath.Join(base, name), 0o755), os.Chown(filepath.Join(base, name), user, user))
	}
	return base
}

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// link makes a symbolic link of a user.
func link(t *testing.T, user int, path, to string) {
	t.Helper()
	mustDo(t, os.Symlink(to, path), os.Lchown(path, user, user))
}

func userOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	user, err := ownerOf(info)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

// TestNobodyGetsAFileOfRoot replaces the temporary file by a link, as the owner of the directory can at any time.
func TestNobodyGetsAFileOfRoot(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	path, shadow := filepath.Join(base, "alice", "config"), filepath.Join(base, "etc", "shadow")
	mustDo(t, os.WriteFile(path, nil, 0o600), os.Chown(path, alice, alice), os.WriteFile(shadow, []byte("secret"), 0o600))
	at, err := fileOf(path)
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	_, info, err := at.read()
	if err != nil {
		t.Fatal(err)
	}
	mustDo(t, at.replace(info, func(file *os.File) error {
		mustDo(t, os.Remove(file.Name()))
		link(t, alice, file.Name(), shadow)
		return nil
	}))
	if user := userOf(t, shadow); user != 0 {
		t.Errorf("the file belongs to user %d", user)
	}
}

// TestDirectoryStaysTheSame replaces the directory by a link to one of root's between the check and the write.
func TestDirectoryStaysTheSame(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	dir := filepath.Join(base, "alice", "kube")
	mustDo(t, os.Mkdir(dir, 0o755), os.Chown(dir, alice, alice))
	for name, open := range map[string]func(string) (place, error){"config": fileOf, "snapshot": entryOf} {
		t.Run(name, func(t *testing.T) {
			at, err := open(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			defer at.close()
			moved := dir + "-" + name
			mustDo(t, os.Rename(dir, moved))
			link(t, alice, dir, filepath.Join(base, "etc"))
			mustDo(t, at.replace(nil, contents([]byte("text"))))
			if _, err := os.Lstat(filepath.Join(base, "etc", name)); !os.IsNotExist(err) {
				t.Errorf("the file is in root's directory: %v", err)
			}
			mustDo(t, os.Remove(dir), os.Rename(moved, dir))
		})
	}
}

// TestRootFollowsNoLinkThatChoosesAFileOfOthers: whoever makes a link in a path that root writes to must not choose a file of
// root with it, or of somebody else.
func TestRootFollowsNoLinkThatChoosesAFileOfOthers(t *testing.T) {
	onlyRoot(t)
	for name, c := range map[string]struct {
		links map[string]string // from a path to a path, in the directory of the user
		root  bool              // the links are root's
		file  string            // an empty file that exists, of the owner of its directory
		want  string            // of the error; empty if the file is written
	}{
		"to a file of root":               {links: map[string]string{"alice/config": "etc/netplan.yaml"}, file: "etc/netplan.yaml", want: "alice/config is a link of user 1234"},
		"to nothing in root's directory":  {links: map[string]string{"alice/config": "etc/nologin"}, want: "alice/config is a link of user 1234"},
		"to nothing in a new directory":   {links: map[string]string{"alice/config": "etc/new/nologin"}, want: "create the directory"},
		"to root's directory":             {links: map[string]string{"alice/kube": "etc"}, want: "alice/kube is a link of user 1234"},
		"to a file of bob":                {links: map[string]string{"alice/config": "bob/config"}, file: "bob/config", want: "user 1235"},
		"with dots in the link":           {links: map[string]string{"alice/config": "alice/../etc/nologin"}, want: "alice/config is a link of user 1234"},
		"to a file of the user":           {links: map[string]string{"alice/config": "alice/dotfiles"}, file: "alice/dotfiles"},
		"to nothing of the user":          {links: map[string]string{"alice/config": "alice/dotfiles"}},
		"to a directory of the user":      {links: map[string]string{"alice/kube": "alice"}},
		"to a file of root, made by root": {links: map[string]string{"alice/config": "etc/netplan.yaml"}, root: true, file: "etc/netplan.yaml"},
		"to itself":                       {links: map[string]string{"alice/config": "alice/config"}, want: "too many levels"},
	} {
		t.Run(name, func(t *testing.T) {
			base := homes(t)
			path := filepath.Join(base, "alice", "config")
			for from, to := range c.links {
				user := alice
				if c.root {
					user = 0
				}
				link(t, user, filepath.Join(base, from), filepath.Join(base, to))
				if filepath.Base(from) != "config" {
					path = filepath.Join(base, from, "config")
				}
			}
			target := filepath.Join(base, c.file)
			if c.file != "" {
				user := userOf(t, filepath.Dir(target))
				mustDo(t, os.WriteFile(target, nil, 0o600), os.Chown(target, user, user))
			}
			err := writeKubeconfig(path, ours("https://127.0.0.1:1"))
			if c.want == "" {
				mustDo(t, err)
				if got := read(t, path).Clusters[ContextName].Server; got != "https://127.0.0.1:1" {
					t.Errorf("server %s", got)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if entries, err := os.ReadDir(filepath.Join(base, "etc")); err != nil || len(entries) > 1 || len(entries) == 1 && c.file == "" {
				t.Errorf("root's directory has %v, %v", entries, err)
			}
			if data, err := os.ReadFile(target); c.file != "" && (err != nil || len(data) > 0) {
				t.Errorf("the file has %q, %v", data, err)
			}
		})
	}
}

// TestFileThatSomebodyHasPutThereGetsNoCredentials: in a directory like /tmp, anybody can make the file before root does.
func TestFileThatSomebodyHasPutThereGetsNoCredentials(t *testing.T) {
	onlyRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	mustDo(t, os.Chmod(dir, 0o777|os.ModeSticky), os.WriteFile(path, nil, 0o600), os.Chown(path, alice, alice))
	if err := writeKubeconfig(path, ours("https://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "user 1234 has made ") {
		t.Errorf("error %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || len(data) > 0 {
		t.Errorf("the file has %q, %v", data, err)
	}
}

// TestSnapshotGoesWhereItsPathLeads: root writes no snapshot where a link of another user leads.
func TestSnapshotGoesWhereItsPathLeads(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	link(t, alice, filepath.Join(base, "alice", "backups"), filepath.Join(base, "etc"))
	write := func(file *os.File) error { return contents([]byte("snapshot"))(file) }
	if err := WriteSnapshot(filepath.Join(base, "alice", "backups", "a"), write); err == nil || !strings.Contains(err.Error(), "is a link of user 1234") {
		t.Errorf("error %v", err)
	}
	mustDo(t, WriteSnapshot(filepath.Join(base, "alice", "b"), write))
	for name, want := range map[string]bool{"etc/a": false, "alice/b": true} {
		if _, err := os.Lstat(filepath.Join(base, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKubeconfigKeepsItsOwner checks that root does not take the kubeconfig of another user away from that user.
func TestKubeconfigKeepsItsOwner(t *testing.T) {
	onlyRoot(t)
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

// TestOnlyRegularFilesAreReplaced: a rename would replace a device, like /dev/null, for all programs.
func TestOnlyRegularFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	directory, pipe := filepath.Join(dir, "directory"), filepath.Join(dir, "pipe")
	mustDo(t, os.Mkdir(directory, 0o700), syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{directory, pipe} {
		if err := writeKubeconfig(path, ours("https://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: error %v", path, err)
		}
	}
}
