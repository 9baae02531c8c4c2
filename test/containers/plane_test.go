// Package containers drives a control plane whose node is this machine: real containers, of a
// containerd that the tests start, with an image that they build.
//
// Where containerd or a program that it needs is missing, the tests skip; in CI, which installs
// them, they fail. No test expects a result within a short time; the output of the containers shows
// that nothing happened too early.
package containers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/controlplane"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// patience is the time that a condition may take before the test fails; normally it takes a small
// part of it.
const patience = eventually.Patience

var (
	workDir string // of all tests
	home    string // as it was when they began
	binary  string // the built coppice
	once    struct {
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
	home = os.Getenv("HOME")
	var err error
	if workDir, err = os.MkdirTemp("", "cri-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	eventually.SideBySide(8)
	os.Setenv("HOME", workDir) // kubectl caches there
	os.Unsetenv("KUBECONFIG")
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stopped // stopping the tests removes the containers too
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

// end ends the processes that the tests have started.
func end() error {
	if shared.plane != nil {
		if err := shared.plane.Stop(); err != nil {
			return err
		}
	}
	if once.daemon != nil {
		return once.daemon.stop()
	}
	return nil
}

// needDaemon returns the containerd of all tests; a test that needs it skips if there cannot be
// one.
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

func build() (err error) {
	os.Setenv("HOME", home) // where the build cache is
	defer os.Setenv("HOME", workDir)
	binary, err = controlplane.Build(filepath.Join("..", ".."), workDir)
	return err
}

// plane is a running control plane, or the agent of a node in a process of its own.
type plane struct {
	*controlplane.Process

	kubeconfig string // a control plane's
}

// start runs coppice up with a node of real containers, and waits until it is ready.
func start(d *daemon, args ...string) (*plane, error) {
	return launch(append([]string{"up", "--secure-port=0", "--node-runtime=cri", "--cri-socket=unix://" + d.socket}, args...)...)
}

// launch runs coppice, and waits until it is ready.
func launch(args ...string) (*plane, error) {
	p, err := controlplane.Start(binary, args...)
	if err != nil {
		return nil, err
	}
	return &plane{Process: p, kubeconfig: p.Kubeconfig}, nil
}

// kill ends the process with SIGKILL.
func (p *plane) kill(t *testing.T) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// sharedPlane returns the control plane that most tests share.
func sharedPlane(t *testing.T) (*plane, *daemon) {
	t.Helper()
	d := needDaemon(t)
	shared.Do(func() { shared.plane, shared.err = start(d, "--ephemeral") })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane, d
}

// ownPlane returns a control plane of one test.
func ownPlane(t *testing.T, d *daemon, args ...string) *plane {
	t.Helper()
	p, err := start(d, args...)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, p)
	return p
}

// stopAtEnd stops the process when the test ends.
func stopAtEnd(t *testing.T, p *plane) {
	t.Helper()
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// try runs kubectl and returns its output.
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

// pods returns the pods that a selector matches.
func (p *plane) pods(t *testing.T, selection ...string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := json.Unmarshal([]byte(p.run(t, append([]string{"get", "pods", "-o", "json"}, selection...)...)), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// pod returns one pod; nil if it does not exist.
func (p *plane) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pods := p.pods(t, "--field-selector=metadata.name="+name)
	if len(pods) == 0 {
		return nil
	}
	return &pods[0]
}

// eventuallyReady waits until a pod is ready, and returns it.
func (p *plane) eventuallyReady(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return p.eventuallyIs(t, name, "ready", isReady)
}

// eventuallySucceeded waits until all containers of a pod have ended well, and returns it.
func (p *plane) eventuallySucceeded(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	return p.eventuallyIs(t, name, "Succeeded", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
}

func (p *plane) eventuallyIs(t *testing.T, name, state string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually.Agrees(t, func() string {
		if pod = p.pod(t, name); pod == nil {
			return "no pod " + name
		}
		if !is(pod) {
			status, _ := json.Marshal(pod.Status)
			return fmt.Sprintf("pod %s is not %s: %s\n%s", name, state, status, p.Log())
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
