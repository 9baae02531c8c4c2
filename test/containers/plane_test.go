// Package containers drives a control plane whose node is this machine: real containers,
// of a containerd that the tests start themselves, with an image that they make themselves.
//
// Where containerd and what it needs are missing the tests skip, and fail in CI, which
// installs them. Nothing is expected to happen within a short time; that something did not
// happen too early is told from what the containers themselves have written.
package containers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// patience is how long a test waits for what must happen; what goes well takes a small
// part of it.
const patience = 3 * time.Minute

var (
	workDir     string   // of all tests
	environment []string // as it was when they began
	binary      string   // the built coppice
	once        struct {
		sync.Once
		daemon *daemon
		err    error
	}
	shared struct {
		sync.Once
		plane *plane
		err   error
	}
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	environment = os.Environ()
	var err error
	if workDir, err = os.MkdirTemp("", "cri-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("HOME", workDir) // kubectl caches there
	os.Unsetenv("KUBECONFIG")
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stopped // whoever stops the tests gets rid of the containers too
		fmt.Fprintln(os.Stderr, "stopped", end())
		os.Exit(1)
	}()
	defer func() {
		err := end()
		if err == nil {
			err = os.RemoveAll(workDir) // only what is unmounted
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return m.Run()
}

// end ends what the tests have started.
func end() error {
	if shared.plane != nil {
		if err := shared.plane.stop(); err != nil {
			return err
		}
	}
	if once.daemon != nil {
		return once.daemon.stop()
	}
	return nil
}

// needDaemon is the containerd of all tests; a test that needs it skips where there can be none.
func needDaemon(t *testing.T) *daemon {
	t.Helper()
	paths, missing := tools()
	if len(missing) > 0 {
		text := strings.Join(missing, ", ")
		if os.Getenv("CI") != "" {
			t.Fatalf("missing: %s; CI is to install it (see .ci/run)", text)
		}
		t.Skipf("missing: %s", text)
	}
	once.Do(func() {
		if once.err = build(); once.err == nil {
			once.daemon, once.err = startDaemon(workDir, paths)
		}
	})
	if once.err != nil {
		t.Fatal(once.err)
	}
	if !once.daemon.network {
		if os.Getenv("CI") != "" {
			t.Fatalf("pods cannot have a network of their own, without which CI tests less than it says: %s", once.daemon.why)
		}
		t.Logf("pods share the host's network, for lack of their own: %s", once.daemon.why)
	}
	return once.daemon
}

func build() error {
	binary = filepath.Join(workDir, "coppice")
	command := exec.Command("go", "build", "-o", binary, "./cmd/coppice")
	command.Dir = filepath.Join("..", "..")
	command.Env = append(environment, "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build coppice: %w: %s", err, out)
	}
	return nil
}

// plane is a running control plane, or the agent of a node in a process of its own.
type plane struct {
	kubeconfig string // a control plane's
	command    *exec.Cmd
	stderr     *transcript
	exited     chan error
}

// transcript is what a process writes while it runs.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String implements fmt.Stringer.
func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// start runs coppice up with a node of real containers, and waits until it is ready.
func start(d *daemon, args ...string) (*plane, error) {
	return launch(append([]string{"up", "--secure-port=0", "--node-runtime=cri", "--cri-socket=unix://" + d.socket}, args...)...)
}

// launch runs coppice, and waits until it is ready.
func launch(args ...string) (*plane, error) {
	p := &plane{stderr: &transcript{}, exited: make(chan error, 1)}
	p.command = exec.Command(binary, args...)
	p.command.Stderr = p.stderr
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	isReady := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if path, ok := strings.CutPrefix(lines.Text(), "export KUBECONFIG="); ok {
				p.kubeconfig = path
			}
			if strings.HasPrefix(lines.Text(), "ready ") {
				close(isReady)
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
		p.exited <- p.command.Wait()
	}()
	select {
	case <-isReady:
		return p, nil
	case err := <-p.exited:
		return nil, fmt.Errorf("coppice %s: %w: %s", args[0], err, p.stderr)
	case <-time.After(patience):
		_ = p.command.Process.Kill()
		<-p.exited
		return nil, fmt.Errorf("coppice %s is not ready after %s: %s", args[0], patience, p.stderr)
	}
}

// stop sends Ctrl-C and waits for the process to end.
func (p *plane) stop() error {
	if p.command.ProcessState != nil {
		return nil
	}
	if err := p.command.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	select {
	case err := <-p.exited:
		if err != nil {
			return fmt.Errorf("coppice %s did not stop cleanly: %w: %s", p.command.Args[1], err, p.stderr)
		}
		return nil
	case <-time.After(patience):
		_ = p.command.Process.Kill()
		<-p.exited
		return fmt.Errorf("coppice %s does not stop: %s", p.command.Args[1], p.stderr)
	}
}

// kill ends the process with SIGKILL.
func (p *plane) kill(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.exited
}

// sharedPlane is the control plane that most tests share.
func sharedPlane(t *testing.T) (*plane, *daemon) {
	t.Helper()
	d := needDaemon(t)
	shared.Do(func() { shared.plane, shared.err = start(d, "--ephemeral") })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane, d
}

// ownPlane is a control plane of one test.
func ownPlane(t *testing.T, d *daemon, args ...string) *plane {
	t.Helper()
	p, err := start(d, args...)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, p)
	return p
}

// stopAtEnd stops it when the test ends.
func stopAtEnd(t *testing.T, p *plane) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// try runs kubectl and returns what it printed.
func (p *plane) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "kubectl", args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig)
	command.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

// run runs kubectl, which must succeed.
func (p *plane) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.try("", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (p *plane) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := p.try(manifest, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
}

// pods are the pods of a selection.
func (p *plane) pods(t *testing.T, selection ...string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := json.Unmarshal([]byte(p.run(t, append([]string{"get", "pods", "-o", "json"}, selection...)...)), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// pod is one pod; nil if it is not there.
func (p *plane) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pods := p.pods(t, "--field-selector=metadata.name="+name)
	if len(pods) == 0 {
		return nil
	}
	return &pods[0]
}

// eventually waits until check returns "", and fails with what it returned last.
func eventually(t *testing.T, check func() string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s", patience, problem)
		}
		<-tick.C
	}
}

// eventuallyReady waits until a pod is ready, and returns it.
func (p *plane) eventuallyReady(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, func() string {
		if pod = p.pod(t, name); pod == nil {
			return "no pod " + name
		}
		if !isReady(pod) {
			status, _ := json.Marshal(pod.Status)
			return fmt.Sprintf("pod %s is not ready: %s\n%s", name, status, p.stderr)
		}
		return ""
	})
	return pod
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
