//go:build unix

package system

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// sharedDir returns a directory of a user in which others may write, as the mode says.
func sharedDir(t *testing.T, user int, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(homes(t), "shared")
	putShared(t, dir, user, mode)
	return dir
}

// putShared makes a directory of a user and of a group that has other members.
func putShared(t *testing.T, path string, user int, mode os.FileMode) {
	t.Helper()
	mustDo(t, os.Mkdir(path, 0o700), os.Chown(path, user, 2000), os.Chmod(path, mode))
}

// put makes an empty file of a user.
func put(t *testing.T, user int, path string) {
	t.Helper()
	mustDo(t, os.WriteFile(path, nil, 0o600), os.Chown(path, user, user))
}

// putDir makes a directory of a user.
func putDir(t *testing.T, user int, path string) {
	t.Helper()
	mustDo(t, os.Mkdir(path, 0o755), os.Chown(path, user, user))
}

// TestNobodyTakesANameInASharedDirectory: where several users may write, the first one who takes a name decides what root
// finds there. The kubeconfig would become that user's.
func TestNobodyTakesANameInASharedDirectory(t *testing.T) {
	onlyRoot(t)
	const sticky = 0o777 | os.ModeSticky
	for name, c := range map[string]struct {
		host int // the owner of the directory
		mode os.FileMode
		make func(t *testing.T, dir string) (path string)
		want string // of the error; empty if root writes the file
	}{
		"a file": {mode: sticky, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			put(t, alice, filepath.Join(dir, "config"))
			return "config"
		}},
		"a file, by a group": {mode: 0o775, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			put(t, alice, filepath.Join(dir, "config"))
			return "config"
		}},
		"a file, by a group of another user": {host: bob, mode: 0o775, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			put(t, alice, filepath.Join(dir, "config"))
			return "config"
		}},
		"a link to a file": {mode: sticky, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			file := filepath.Join(filepath.Dir(dir), "alice", "mine")
			put(t, alice, file)
			link(t, alice, filepath.Join(dir, "config"), file)
			return "config"
		}},
		"a link to nothing": {mode: sticky, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			link(t, alice, filepath.Join(dir, "config"), filepath.Join(filepath.Dir(dir), "alice", "mine"))
			return "config"
		}},
		"a link to a directory": {mode: sticky, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			link(t, alice, filepath.Join(dir, "kube"), filepath.Join(filepath.Dir(dir), "alice"))
			return "kube/config"
		}},
		"a directory": {mode: sticky, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			putDir(t, alice, filepath.Join(dir, "kube"))
			put(t, alice, filepath.Join(dir, "kube", "config"))
			return "kube/config"
		}},
		"a directory, below a link of root": {mode: sticky, want: "user 1234 has made ", make: func(t *testing.T, dir string) string {
			putDir(t, alice, filepath.Join(dir, "kube"))
			link(t, 0, filepath.Join(filepath.Dir(dir), "etc", "kube"), filepath.Join(dir, "kube"))
			return "../etc/kube/config"
		}},
		"nothing": {mode: sticky, make: func(*testing.T, string) string { return "kube/config" }},
		"a file of root": {mode: sticky, make: func(t *testing.T, dir string) string {
			put(t, 0, filepath.Join(dir, "config"))
			return "config"
		}},
		"a link of root": {mode: sticky, make: func(t *testing.T, dir string) string {
			link(t, 0, filepath.Join(dir, "kube"), filepath.Join(filepath.Dir(dir), "etc"))
			return "kube/config"
		}},
		"a file of the owner": {host: alice, mode: 0o775, make: func(t *testing.T, dir string) string {
			put(t, alice, filepath.Join(dir, "config"))
			return "config"
		}},
		"a directory of the owner": {host: alice, mode: 0o775, make: func(t *testing.T, dir string) string {
			putDir(t, alice, filepath.Join(dir, "kube"))
			return "kube/config"
		}},
		"a file in a directory of root alone": {mode: 0o755, make: func(t *testing.T, dir string) string {
			put(t, alice, filepath.Join(dir, "config"))
			return "config"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := sharedDir(t, c.host, c.mode)
			path := filepath.Join(dir, c.make(t, dir))
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
			if data, err := os.ReadFile(path); len(data) > 0 || err != nil && !os.IsNotExist(err) {
				t.Errorf("the file has %q, %v", data, err)
			}
		})
	}
}

// TestSnapshotLeavesASharedDirectoryThroughNoLink: whoever made the link could exchange the snapshot before it is restored.
func TestSnapshotLeavesASharedDirectoryThroughNoLink(t *testing.T) {
	onlyRoot(t)
	dir := sharedDir(t, 0, 0o777|os.ModeSticky)
	home := filepath.Join(filepath.Dir(dir), "alice")
	link(t, alice, filepath.Join(dir, "backups"), home)
	if err := WriteSnapshot(filepath.Join(dir, "backups", "a"), contents([]byte("snapshot"))); err == nil || !strings.Contains(err.Error(), "user 1234 has made ") {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(home); err != nil || len(entries) > 0 {
		t.Errorf("the user has %v, %v", entries, err)
	}
	put(t, alice, filepath.Join(dir, "b"))
	mustDo(t, WriteSnapshot(filepath.Join(dir, "b"), contents([]byte("snapshot"))))
	if user := userOf(t, filepath.Join(dir, "b")); user != 0 {
		t.Errorf("the snapshot belongs to user %d", user)
	}
}

// TestFileThatAppearsAfterTheWalkGetsNoCredentials makes the file when root has looked for it already: before root reads it,
// and after that.
func TestFileThatAppearsAfterTheWalkGetsNoCredentials(t *testing.T) {
	onlyRoot(t)
	path := filepath.Join(sharedDir(t, 0, 0o777|os.ModeSticky), "config")
	at, err := fileOf(path)
	mustDo(t, err)
	defer at.close()
	_, info, err := at.read()
	if !errors.Is(err, fs.ErrNotExist) || info != nil {
		t.Fatalf("%v, %v", info, err)
	}
	put(t, alice, path)
	if data, info, err := at.read(); err == nil || !strings.Contains(err.Error(), "user 1234 has made ") || info != nil {
		t.Errorf("%q, %v, %v", data, info, err)
	}
	mustDo(t, at.replace(info, contents([]byte("credentials"))))
	if user := userOf(t, path); user != 0 {
		t.Errorf("the file belongs to user %d", user)
	}
}

// TestFileThatAppearsAfterALinkWasFollowed: the link of a user leads to nothing, and to a file of another user afterwards.
func TestFileThatAppearsAfterALinkWasFollowed(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	path, target := filepath.Join(base, "alice", "config"), filepath.Join(base, "alice", "dotfiles")
	link(t, alice, path, target)
	at, err := fileOf(path)
	mustDo(t, err)
	defer at.close()
	put(t, bob, target)
	if _, _, err := at.read(); err == nil || !strings.Contains(err.Error(), "of user 1235") {
		t.Errorf("error %v", err)
	}
}

// TestRootWritesThroughALinkAgain: the first kubeconfig through the link of a user is root's, and is renewed there.
func TestRootWritesThroughALinkAgain(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	path := filepath.Join(base, "alice", "config")
	link(t, alice, path, filepath.Join(base, "alice", "dotfiles"))
	for _, server := range []string{"https://127.0.0.1:1", "https://127.0.0.1:2"} {
		mustDo(t, writeKubeconfig(path, ours(server)))
		if got := read(t, path).Clusters[ContextName].Server; got != server {
			t.Errorf("server %s, want %s", got, server)
		}
	}
}

// TestRelativePathBeginsAtTheDirectoryItself: the link through which the shell has come there does not count.
func TestRelativePathBeginsAtTheDirectoryItself(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	work := filepath.Join(base, "alice", "work")
	link(t, alice, work, filepath.Join(base, "etc"))
	t.Chdir(work) // which sets $PWD
	if got := os.Getenv("PWD"); got != work {
		t.Fatalf("$PWD is %s", got)
	}
	mustDo(t,
		WriteSnapshot("snapshot", contents([]byte("snapshot"))),
		writeKubeconfig("config", ours("https://127.0.0.1:1")),
		WriteSnapshot("../beside", contents([]byte("snapshot"))))
	for _, name := range []string{"etc/snapshot", "etc/config", "beside"} {
		if _, err := os.Lstat(filepath.Join(base, name)); err != nil {
			t.Error(err)
		}
	}
	link(t, alice, filepath.Join(base, "alice", "kube"), filepath.Join(base, "etc"))
	if err := WriteSnapshot("../alice/kube/snapshot", contents([]byte("snapshot"))); err == nil || !strings.Contains(err.Error(), "is a link of user 1234") {
		t.Errorf("a link in the path itself: %v", err)
	}
}

// TestAuditLogOfRootIsInRootsDirectories: the rotation renames, makes and truncates files by their names, so that whoever may
// put a link there would choose files of root.
func TestAuditLogOfRootIsInRootsDirectories(t *testing.T) {
	onlyRoot(t)
	for name, c := range map[string]struct {
		path string
		want string // of the error; empty if the log is opened
	}{
		"root's directory":        {path: "etc/audit.log"},
		"a new directory":         {path: "etc/new/audit.log"},
		"a directory of a user":   {path: "alice/audit.log", want: "alice is a directory of user 1234"},
		"below one of a user":     {path: "alice/logs/audit.log", want: "alice is a directory of user 1234"},
		"everybody's directory":   {path: "tmp/audit.log", want: "everybody may write to "},
		"below everybody's":       {path: "tmp/logs/audit.log"},
		"without the sticky bit":  {path: "open/logs/audit.log", want: "everybody may write to "},
		"a group's directory":     {path: "log/audit.log"},
		"a link of a user":        {path: "alice/link.log", want: "alice/link.log is a link of user 1234"},
		"a link of root":          {path: "etc/link.log"},
		"a directory of the name": {path: "etc/directory.log", want: "etc/directory.log is no regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			base := homes(t)
			passwd := filepath.Join(base, "etc", "passwd")
			mustDo(t, os.WriteFile(passwd, []byte("root:x:0:0\n"), 0o600), os.Chmod(passwd, 0o644))
			putShared(t, filepath.Join(base, "tmp"), 0, 0o777|os.ModeSticky)
			putShared(t, filepath.Join(base, "open"), 0, 0o777)
			putShared(t, filepath.Join(base, "log"), 0, 0o775)
			putDir(t, 0, filepath.Join(base, "etc", "directory.log"))
			link(t, 0, filepath.Join(base, "etc", "link.log"), filepath.Join(base, "log", "link.log"))
			link(t, alice, filepath.Join(base, "alice", "link.log"), passwd)
			log, err := openAudit(Options{AuditPath: filepath.Join(base, c.path)}, nil)
			if c.want == "" {
				mustDo(t, err)
				_, err := log.Write([]byte("line\n"))
				mustDo(t, err, log.Close())
				if text, err := os.ReadFile(filepath.Join(base, c.path)); err != nil || string(text) != "line\n" {
					t.Errorf("the log has %q, %v", text, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--audit-log-path") {
				t.Errorf("error %v, want %q", err, c.want)
			}
			info, err := os.Stat(passwd)
			mustDo(t, err)
			if text, err := os.ReadFile(passwd); err != nil || string(text) != "root:x:0:0\n" || info.Mode().Perm() != 0o644 {
				t.Errorf("root's file has mode %o and %q, %v", info.Mode().Perm(), text, err)
			}
		})
	}
}

// TestAuditLogInADataDirectoryOfAnotherUser: root may run on such a directory, but follows no link in it to a file of its own.
func TestAuditLogInADataDirectoryOfAnotherUser(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	dir := &dataDir{path: filepath.Join(base, "alice")}
	log, err := openAudit(Options{}, dir)
	mustDo(t, err)
	mustDo(t, log.Close(), os.Remove(dir.join(auditFile)))
	put(t, 0, filepath.Join(base, "etc", "passwd"))
	link(t, alice, dir.join(auditFile), filepath.Join(base, "etc", "passwd"))
	if _, err := openAudit(Options{}, dir); err == nil || !strings.Contains(err.Error(), "is a link of user 1234") {
		t.Errorf("error %v", err)
	}
}

// dropBoxVariable makes TestUsersWriteIntoDropBoxes write into a directory, as another user than root.
const dropBoxVariable = "COPPICE_TEST_DROP_BOX"

// TestUsersWriteIntoDropBoxes: a user needs no right to read a directory in order to write a file there. An audit log that is a
// FIFO without a reader keeps no user waiting.
func TestUsersWriteIntoDropBoxes(t *testing.T) {
	if box := os.Getenv(dropBoxVariable); box != "" {
		if os.Geteuid() == 0 { // who may read everything
			mustDo(t, syscall.Setgroups(nil), syscall.Setgid(alice), syscall.Setuid(alice))
		}
		mustDo(t,
			WriteSnapshot(filepath.Join(box, "snapshot"), contents([]byte("snapshot"))),
			writeKubeconfig(filepath.Join(box, "config"), ours("https://127.0.0.1:1")),
			writeKubeconfig(filepath.Join(box, "config"), ours("https://127.0.0.1:2")))
		if got := read(t, filepath.Join(box, "config")).Clusters[ContextName].Server; got != "https://127.0.0.1:2" {
			t.Errorf("server %s", got)
		}
		fifo := filepath.Join(box, "fifo")
		mustDo(t, syscall.Mkfifo(fifo, 0o600))
		if _, err := openAudit(Options{AuditPath: fifo}, nil); err == nil || !strings.Contains(err.Error(), "--audit-log-path") {
			t.Errorf("a FIFO that nobody reads as the audit log: error %v", err)
		}
		return
	}
	box := t.TempDir()
	if os.Geteuid() == 0 {
		letOthersTo(t, box)
		mustDo(t, os.Chown(box, alice, alice))
	}
	program, err := os.Executable()
	mustDo(t, err)
	command := exec.CommandContext(t.Context(), program, "-test.run=^TestUsersWriteIntoDropBoxes$")
	command.Env = append(os.Environ(), dropBoxVariable+"="+box)
	mustDo(t, os.Chmod(box, 0o300))
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "PASS") {
		t.Errorf("%v: %s", err, output)
	}
	mustDo(t, os.Chmod(box, 0o700))
	if entries, err := os.ReadDir(box); err != nil || len(entries) != 3 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

// letOthersTo lets other users go to a directory of t.TempDir. It changes only the one that the test has made for all its
// directories, and skips the test if others cannot go there.
func letOthersTo(t *testing.T, dir string) {
	t.Helper()
	const mayPass = 0o011
	mustDo(t, os.Chmod(filepath.Dir(dir), 0o700|mayPass))
	for above := filepath.Dir(dir); above != filepath.Dir(above); above = filepath.Dir(above) {
		info, err := os.Stat(above)
		mustDo(t, err)
		if info.Mode().Perm()&mayPass != mayPass {
			t.Skipf("other users cannot go to %s: set TMPDIR to a directory that is open to them", above)
		}
	}
}
