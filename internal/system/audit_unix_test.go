//go:build unix

package system

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

// writeLine writes to an audit log, and closes it.
func writeLine(t *testing.T, log io.WriteCloser) {
	t.Helper()
	_, err := log.Write([]byte("line\n"))
	mustDo(t, err, log.Close())
}

// TestRootRunsOnAnyDataDirectory: root writes its own files there, also if another user has made the directory or
// a link to it.
func TestRootRunsOnAnyDataDirectory(t *testing.T) {
	onlyRoot(t)
	for name, prepare := range map[string]func(t *testing.T, base string) (dir string){
		"made by a user, in everybody's directory": func(t *testing.T, base string) string {
			putShared(t, filepath.Join(base, "tmp"), 0, 0o777|os.ModeSticky)
			putDir(t, alice, filepath.Join(base, "tmp", "data"))
			return "tmp/data"
		},
		"made by a user, in a directory of a group": func(t *testing.T, base string) string {
			putShared(t, filepath.Join(base, "team"), 0, 0o775|os.ModeSetgid)
			putDir(t, alice, filepath.Join(base, "team", "data"))
			return "team/data"
		},
		"through the link of a user": func(t *testing.T, base string) string {
			link(t, alice, filepath.Join(base, "alice", "work"), filepath.Join(base, "mnt"))
			putDir(t, 0, filepath.Join(base, "mnt"))
			putDir(t, alice, filepath.Join(base, "mnt", "data"))
			return "alice/work/data"
		},
		"the link of a user": func(t *testing.T, base string) string {
			link(t, alice, filepath.Join(base, "alice", "data"), filepath.Join(base, "etc"))
			return "alice/data"
		},
		"with files of its owner": func(t *testing.T, base string) string {
			putShared(t, filepath.Join(base, "data"), alice, 0o775)
			put(t, alice, filepath.Join(base, "data", auditFile))
			put(t, alice, filepath.Join(base, "data", kubeconfigFile))
			return "data"
		},
		"with files that root has given away": func(t *testing.T, base string) string {
			put(t, bob, filepath.Join(base, "etc", auditFile))
			put(t, bob, filepath.Join(base, "etc", kubeconfigFile))
			return "etc"
		},
		"with a link of root": func(t *testing.T, base string) string {
			link(t, 0, filepath.Join(base, "alice", auditFile), filepath.Join(base, "etc", "log"))
			return "alice"
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := homes(t)
			dir := mustLock(t, filepath.Join(base, prepare(t, base)))
			log, err := openAudit(Options{}, dir)
			mustDo(t, err)
			writeLine(t, log)
			if text, err := os.ReadFile(dir.join(auditFile)); err != nil || string(text) != "line\n" {
				t.Errorf("the log has %q, %v", text, err)
			}
			facts := Plane{Server: "https://127.0.0.1:1", Kubeconfig: dir.join(kubeconfigFile)}
			_, err = writeCredentials(completedOptions{Options: Options{Log: slog.New(slog.DiscardHandler)}}, mustLoad(t), facts)
			mustDo(t, err)
			if got := read(t, facts.Kubeconfig).Clusters[ContextName].Server; got != facts.Server {
				t.Errorf("server %s", got)
			}
		})
	}
}

func mustLoad(t *testing.T) *auth.Authority {
	t.Helper()
	authority, err := auth.LoadAuthority(t.TempDir(), time.Now)
	mustDo(t, err)
	return authority
}

// TestRootUsesNoFileOfOthersInADataDirectory: the directory counts as it is, the file in it does not.
func TestRootUsesNoFileOfOthersInADataDirectory(t *testing.T) {
	onlyRoot(t)
	for name, c := range map[string]struct {
		make func(t *testing.T, base, path string)
		want string
	}{
		"a file of another user": {want: "user 1235 has made ", make: func(t *testing.T, _, path string) { put(t, bob, path) }},
		"a link of another user": {want: "user 1235 has made ", make: func(t *testing.T, base, path string) { link(t, bob, path, filepath.Join(base, "bob", "file")) }},
		"a link of the owner": {want: "is a link of user 1234", make: func(t *testing.T, base, path string) {
			put(t, 0, filepath.Join(base, "etc", "file"))
			link(t, alice, path, filepath.Join(base, "etc", "file"))
		}},
		"a FIFO":      {want: "is no regular file", make: func(t *testing.T, _, path string) { mustDo(t, syscall.Mkfifo(path, 0o600)) }},
		"a directory": {want: "is no regular file", make: func(t *testing.T, _, path string) { putDir(t, alice, path) }},
	} {
		t.Run(name, func(t *testing.T) {
			base := homes(t)
			putShared(t, filepath.Join(base, "data"), alice, 0o775)
			dir := &dataDir{path: filepath.Join(base, "data")}
			c.make(t, base, dir.join(auditFile))
			c.make(t, base, dir.join("own"))
			if _, err := openAudit(Options{}, dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--audit-log-path") {
				t.Errorf("the log: error %v, want %q", err, c.want)
			}
			own := credentials{mustLoad(t), "https://127.0.0.1:1", administrator(), dir.join("own"), nil, nil}
			if _, err := own.issue(""); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the kubeconfig: error %v, want %q", err, c.want)
			}
			if data, err := os.ReadFile(filepath.Join(base, "etc", "file")); len(data) > 0 || err != nil && !os.IsNotExist(err) {
				t.Errorf("root's file has %q, %v", data, err)
			}
		})
	}
}

// TestTrustedDirectoryOfTheAuditLog: a test in a container often runs as root in a directory of another user.
func TestTrustedDirectoryOfTheAuditLog(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	putShared(t, filepath.Join(base, "tmp"), 0, 0o777|os.ModeSticky)
	putDir(t, alice, filepath.Join(base, "tmp", "test"))
	trusting := ServerOptions{TrustAuditDir: true}
	for _, path := range []string{"alice/audit.log", "alice/new/audit.log", "tmp/audit.log", "tmp/test/audit.log"} {
		path = filepath.Join(base, path)
		log, err := openAudit(Options{AuditPath: path, Server: trusting}, nil)
		mustDo(t, err)
		writeLine(t, log)
		if text, err := os.ReadFile(path); err != nil || string(text) != "line\n" {
			t.Errorf("%s has %q, %v", path, text, err)
		}
	}
	taken := filepath.Join(base, "tmp", "taken.log")
	put(t, alice, taken)
	if _, err := openAudit(Options{AuditPath: taken, Server: trusting}, nil); err == nil || !strings.Contains(err.Error(), "user 1234 has made ") {
		t.Errorf("a file of a user: error %v", err)
	}
}

// TestAuditLogToStandardStreams: a path of the stream works also if the stream is a pipe.
func TestAuditLogToStandardStreams(t *testing.T) {
	for path, want := range map[string]*os.File{
		"-": os.Stdout, "/dev/stdout": os.Stdout, "/dev/fd/1": os.Stdout, "/proc/self/fd/1": os.Stdout,
		"/dev/stderr": os.Stderr, "/dev/fd/2": os.Stderr, "/proc/self/fd/2": os.Stderr,
	} {
		log, err := openAudit(Options{AuditPath: path}, nil)
		mustDo(t, err)
		if got := (nopCloser{want}); log != got {
			t.Errorf("%s is %v, want %v", path, log, got)
		}
	}
}

// TestFIFOInAPathKeepsNobodyWaiting: to open one waits until somebody writes to it.
func TestFIFOInAPathKeepsNobodyWaiting(t *testing.T) {
	base := t.TempDir()
	fifo := filepath.Join(base, "fifo")
	mustDo(t, syscall.Mkfifo(fifo, 0o666))
	inside := filepath.Join(fifo, "file")
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "no directory") && !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	refused("a kubeconfig", writeKubeconfig(inside, ours("https://127.0.0.1:1")))
	refused("a snapshot", WriteSnapshot(inside, contents([]byte("snapshot"))))
	refused("a file of the data directory", writePrivate(inside, nil))
	for _, server := range []ServerOptions{{}, {TrustAuditDir: true}} {
		_, err := openAudit(Options{AuditPath: inside, Server: server}, nil)
		refused("an audit log", err)
	}
	// Somebody puts it there after the walk has looked at the name.
	dir, err := os.OpenRoot(base)
	mustDo(t, err)
	defer dir.Close()
	_, err = dir.OpenRoot(asDirectory(filepath.Base(fifo)))
	refused("a directory", err)
}

// TestAuditLogStaysInItsDirectory: the user changes the link to the data directory before the file is opened again.
func TestAuditLogStaysInItsDirectory(t *testing.T) {
	onlyRoot(t)
	base := homes(t)
	through := filepath.Join(base, "alice", "data")
	link(t, alice, through, filepath.Join(base, "alice"))
	log, err := openAudit(Options{}, &dataDir{path: through})
	mustDo(t, err, os.Remove(through))
	link(t, alice, through, filepath.Join(base, "etc"))
	writeLine(t, log)
	if text, err := os.ReadFile(filepath.Join(base, "alice", auditFile)); err != nil || string(text) != "line\n" {
		t.Errorf("the log has %q, %v", text, err)
	}
	if entries, err := os.ReadDir(filepath.Join(base, "etc")); err != nil || len(entries) > 0 {
		t.Errorf("root's directory has %v, %v", entries, err)
	}
}
