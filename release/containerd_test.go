package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/release/internal/image"
)

// patience is how long a test waits for a program.
const patience = 2 * time.Minute

// TestImageCollectsInContainerd imports the image, with Coppice itself in it, into a containerd, and runs coppice
// collect from it against a coppice up outside.
func TestImageCollectsInContainerd(t *testing.T) {
	needs(t, "containerd", "ctr", "runc")
	coppice := filepath.Join(t.TempDir(), "coppice")
	build := exec.Command("go", "build", "-o", coppice, "./cmd/coppice")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build coppice: %v: %s", err, out)
	}
	// The image needs a binary for each architecture; only this machine's is run.
	archive := filepath.Join(t.TempDir(), "image.tar")
	binaries := map[string]string{"amd64": os.Args[0], "arm64": os.Args[0]}
	binaries[runtime.GOARCH] = coppice
	made := image.Image{Name: "docker.io/library/coppice", Version: testVersion, Created: time.Unix(0, 0), Binaries: binaries}
	if _, err := made.Write(archive); err != nil {
		t.Fatal(err)
	}
	// Short: the path of a socket may have 108 bytes.
	dir, err := os.MkdirTemp("", "ctr") //nolint:usetesting // its path would be too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctr := startContainerd(t, dir)
	if out, err := ctr("images", "import", "--snapshotter", "native", archive).CombinedOutput(); err != nil {
		t.Fatalf("import: %v: %s", err, out)
	}

	kubeconfig := filepath.Join(dir, "kubeconfig")
	start(t, "ready", exec.Command(coppice, "up", "--ephemeral", "--secure-port", "0", "--nodes", "0", "--controllers", "", "--write-kubeconfig", kubeconfig))
	if err := os.Chmod(kubeconfig, 0o644); err != nil { // the container runs as another user
		t.Fatal(err)
	}
	start(t, "collecting https://", ctr("run", "--rm", "--net-host", "--snapshotter", "native",
		"--mount", "type=bind,src="+kubeconfig+",dst=/kubeconfig,options=rbind:ro",
		made.Name+":"+testVersion, "collector", "/coppice", "collect", "--kubeconfig", "/kubeconfig", "--bind-address", "0"))
}

// startContainerd starts a containerd in dir, and returns how to run ctr with it.
func startContainerd(t *testing.T, dir string) func(args ...string) *exec.Cmd {
	t.Helper()
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\n  address = %q\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("containerd", "--config", config)
	command.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/usr/local/sbin")
	start(t, "containerd successfully booted", command)
	return func(args ...string) *exec.Cmd {
		return exec.Command("ctr", append([]string{"--address", socket}, args...)...)
	}
}

// start starts a program, waits until it has printed a text, and ends it when the test does.
func start(t *testing.T, text string, command *exec.Cmd) {
	t.Helper()
	out, in := io.Pipe()
	command.Stdout, command.Stderr = in, in
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := command.Wait()
		_ = in.Close()
		ended <- err
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("%s does not end", command.Path)
			_ = command.Process.Kill()
			<-ended
		}
	})
	seen, gone := make(chan struct{}), make(chan struct{})
	var said bytes.Buffer // until it is gone
	go func() {
		defer close(gone)
		found := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
			if !found && strings.Contains(lines.Text(), text) {
				found = true
				close(seen)
			}
		}
	}()
	select {
	case <-seen:
	case <-gone:
		t.Fatalf("%v has ended without %q: %s", command.Args, text, said.Bytes())
	case <-time.After(patience):
		t.Fatalf("%v does not print %q", command.Args, text)
	}
}

// needs skips a test where a program is missing, and fails it in CI, which installs them.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	var missing []string
	for _, p := range programs {
		_, err := exec.LookPath(p)
		if _, other := os.Stat("/usr/sbin/" + p); err != nil && other != nil {
			missing = append(missing, p)
		}
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		missing = append(missing, "root of a Linux")
	}
	switch {
	case len(missing) == 0:
	case os.Getenv("CI") != "":
		t.Fatalf("missing: %v", missing)
	default:
		t.Skipf("missing: %v", missing)
	}
}
