package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Environment variables for actions of the test binary that may end its process.
const (
	// damagedVariable names a damaged directory to open.
	damagedVariable = "COPPICE_TEST_DAMAGED"
	// fillVariable names a directory to write to until writes fail. Acknowledged writes are
	// printed.
	fillVariable = "COPPICE_TEST_FILL"
	// readOnlyVariable names a directory that cannot be opened because it is read-only.
	readOnlyVariable = "COPPICE_TEST_READ_ONLY"
	// verifyVariable names a directory that must contain the writes read from standard input.
	verifyVariable = "COPPICE_TEST_VERIFY"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // tests provoke errors
	for variable, do := range map[string]func(dir string) error{
		damagedVariable: openAlone, fillVariable: fill, readOnlyVariable: openReadOnly, verifyVariable: verify,
	} {
		if dir := os.Getenv(variable); dir != "" {
			if err := do(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
			return
		}
	}
	eventually.SideBySide(8)
	os.Exit(m.Run())
}

// open opens an ephemeral store for one test.
func open(t testing.TB) *Store {
	t.Helper()
	return openWith(t, Options{Dir: t.TempDir(), Ephemeral: true})
}

// openWith opens a store for one test.
func openWith(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), o)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put writes a value, and returns the revision. The key follows the prefix of the store.
func (s *Store) put(t testing.TB, key, value string) int64 {
	t.Helper()
	response, err := s.client.Put(context.Background(), s.prefix+key, value)
	must(t, err)
	return response.Header.Revision
}

// remove removes a key, and returns the revision. The key follows the prefix of the store.
func (s *Store) remove(t testing.TB, key string) int64 {
	t.Helper()
	response, err := s.client.Delete(context.Background(), s.prefix+key)
	must(t, err)
	return response.Header.Revision
}

// keys returns all keys, without the prefix of the store.
func (s *Store) keys(t testing.TB) (keys []string) {
	t.Helper()
	response, err := s.client.Get(context.Background(), s.prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	must(t, err)
	for _, kv := range response.Kvs {
		keys = append(keys, strings.TrimPrefix(string(kv.Key), s.prefix))
	}
	return keys
}

func openAlone(dir string) error {
	s, err := Open(context.Background(), Options{Dir: dir, FatalLog: os.Stderr})
	if err != nil {
		return err
	}
	return s.Close()
}

func TestOpenFailsOnUnusableDirectories(t *testing.T) {
	write := func(t *testing.T, path string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o600))
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		says    string
	}{
		"a file":             {func(t *testing.T, dir string) { write(t, dir) }, "create the data directory"},
		"below a file":       {func(t *testing.T, dir string) { write(t, filepath.Dir(dir)) }, "create the data directory"},
		"no place for files": {func(t *testing.T, dir string) { must(t, os.Symlink("/proc/self", dir)) }, "write to the data directory"},
		"no member":          {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "member")) }, "start etcd on"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data", "etcd")
			if name != "below a file" {
				must(t, os.MkdirAll(filepath.Dir(dir), 0o700))
			}
			if name == "no place for files" && runtime.GOOS != "linux" {
				t.Skip("there is no /proc")
			}
			test.prepare(t, dir)
			s, err := Open(t.Context(), Options{Dir: dir})
			if err == nil {
				s.Close()
				t.Fatal("it opens")
			}
			if !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, test.says)
			}
		})
	}
}

// Open fails on a directory that the user may not write to. root may, so as root the test runs its
// own binary as another user.
func TestOpenFailsOnAReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	command := self(t, readOnlyVariable, dir)
	if os.Geteuid() == 0 {
		must(t, errors.Join(os.Chown(dir, otherUser, otherUser), letOthersIn(filepath.Dir(dir)), letOthersIn(filepath.Dir(command.Path))))
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
	}
	must(t, os.Chmod(dir, 0o500))
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

// otherUser is the user and group ID of the user "nobody".
const otherUser = 65534

// letOthersIn makes the contents of a directory accessible to other users.
func letOthersIn(dir string) error {
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if err := os.Chmod(dir, info.Mode().Perm()|0o055); err != nil {
			return err
		}
	}
	return nil
}

// self returns a command that runs this test binary with an environment variable for TestMain.
func self(t *testing.T, variable, dir string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
	command := exec.CommandContext(t.Context(), path)
	command.Env = append(os.Environ(), variable+"="+dir)
	return command
}

// openReadOnly returns an error unless Open reports that it may not write to the directory.
func openReadOnly(dir string) error {
	s, err := Open(context.Background(), Options{Dir: dir})
	switch {
	case err == nil:
		return errors.Join(errors.New("it opens"), s.Close())
	case !errors.Is(err, os.ErrPermission):
		return err
	}
	return nil
}

func TestCancelledOpenLeavesTheDirectoryUsable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	s, err := Open(ctx, Options{Dir: dir, Ephemeral: true})
	if err == nil {
		s.Close()
		t.Fatal("it opens although its context has ended")
	}
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s, err = Open(t.Context(), Options{Dir: dir, Ephemeral: true}); err != nil {
		t.Fatalf("the directory cannot be opened afterwards: %v", err)
	}
	must(t, s.Close())
}

// A single line reports that etcd's log is damaged, and the remedy.
func TestDamagedLogIsReportedInOneLine(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir})
	must(t, err)
	s.put(t, "/configmaps/team/a", "x")
	must(t, s.Close())
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	must(t, err)
	log, err := os.OpenFile(logs[0], os.O_WRONLY, 0)
	must(t, err)
	_, err = log.WriteAt([]byte("damaged"), 300)
	must(t, errors.Join(err, log.Close()))
	if s, err = Open(t.Context(), Options{Dir: dir}); err == nil {
		s.Close()
		t.Fatal("it opens")
	}
	checkFatalLine(t, err.Error(), dir)
}

// The message of etcd before it ends the process is one line: the failure, its cause and the
// remedy.
func TestFatalLogIsOneLineWithTheRemedy(t *testing.T) {
	for _, test := range []struct {
		level  zapcore.Level
		fields []zapcore.Field
		want   string
	}{
		{zapcore.ErrorLevel, nil, ""},
		{zapcore.PanicLevel, nil, "coppice: etcd on /data: it ends; if its files are damaged, " + restoreInstead + "\n"},
		{
			zapcore.FatalLevel,
			[]zapcore.Field{zap.Int("n", 1), zap.String("path", "/data/db"), zap.Error(errors.New("two\nlines"))},
			"coppice: etcd on /data: it ends: /data/db: two lines; if its files are damaged, " + restoreInstead + "\n",
		},
		{
			zapcore.FatalLevel,
			[]zapcore.Field{zap.Error(&os.PathError{Op: "write", Path: "wal", Err: syscall.ENOSPC})},
			"coppice: etcd on /data: it ends: write wal: no space left on device; all acknowledged writes are on disk: free disk space, and start again\n",
		},
	} {
		var said strings.Builder
		core := fatalLog{to: &said, dir: "/data"}
		entry := zapcore.Entry{Level: test.level, Message: "it ends"}
		if core.Check(entry, nil) != nil {
			must(t, core.Write(entry, test.fields))
		}
		if said.String() != test.want {
			t.Errorf("%s: %q, want %q", test.level, said.String(), test.want)
		}
	}
}

func TestReopeningKeepsTheData(t *testing.T) {
	dir := t.TempDir()
	var revision int64
	for i, name := range []string{"first", "second", "third"} {
		s, err := Open(t.Context(), Options{Dir: dir})
		must(t, err)
		must(t, s.Healthy(t.Context()))
		s.put(t, "/"+name, "x")
		if got := s.keys(t); len(got) != i+1 || !slices.Contains(got, "/first") {
			t.Errorf("opened %d times, there is %v", i+1, got)
		}
		now, err := s.Revision(t.Context())
		must(t, err)
		if now <= revision {
			t.Errorf("the revision goes from %d to %d", revision, now)
		}
		revision = now
		must(t, s.Close())
		if err := s.Healthy(t.Context()); err == nil {
			t.Error("a closed store is healthy")
		}
		if _, err := s.Revision(t.Context()); err == nil {
			t.Error("a closed store has a revision")
		}
	}
}

func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	s, err := Open(t.Context(), Options{Dir: dir, Ephemeral: true})
	must(t, err)
	defer s.Close()
	info, err := os.Stat(dir)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %o", info.Mode().Perm())
	}
	left, err := filepath.Glob(filepath.Join(dir, ".writable-*"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}

// The store is called in process: it listens on no socket.
func TestNothingListens(t *testing.T) {
	s := open(t)
	if len(s.member.Clients) > 0 || len(s.member.Peers) > 0 {
		t.Errorf("%d listeners for clients, %d for peers", len(s.member.Clients), len(s.member.Peers))
	}
}
