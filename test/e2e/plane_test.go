// Package e2e drives a control plane from outside, as its users do: the built binary, a real kubectl, curl.
//
// TestMain builds the binary. Most tests share one control plane and work in a namespace of their own; a test about
// starting and stopping starts its own.
package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/testing/controlplane"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// patience is the time that a condition may take before the test fails; normally it takes a small
// part of it.
const patience = eventually.Patience

var (
	binary string // the built coppice
	shared struct {
		once  sync.Once
		plane *plane
		err   error
	}
)

func TestMain(m *testing.M) {
	if arguments := os.Getenv(memberVariable); arguments != "" {
		os.Exit(beMember(arguments))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "coppice-e2e-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = controlplane.Build(filepath.Join("..", ".."), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// kubectl caches discovery in the home directory, across servers on one port.
	os.Setenv("HOME", dir)
	os.Unsetenv("KUBECONFIG")
	os.Unsetenv("COPPICE_DATA_DIR")
	eventually.SideBySide(2 * runtime.GOMAXPROCS(0))
	code := m.Run()
	for _, p := range []*plane{shared.plane, batch.plane} {
		if p == nil {
			continue
		}
		if err := p.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// plane is a running control plane.
type plane struct {
	*controlplane.Process

	kubeconfig string
	server     string
}

// start runs coppice up with args and waits until it is ready.
func start(args ...string) (*plane, error) {
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--secure-port") }) {
		return nil, fmt.Errorf("%q: a test names --secure-port, because others would use the default port, too", args)
	}
	p, err := controlplane.Start(binary, append([]string{"up"}, args...)...)
	if err != nil {
		return nil, err
	}
	return &plane{Process: p, kubeconfig: p.Kubeconfig, server: p.Server}, nil
}

// kill ends the process with SIGKILL.
func (p *plane) kill(t *testing.T) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
}

// sharedPlane returns the control plane that most tests share.
func sharedPlane(t *testing.T) *plane {
	t.Helper()
	shared.once.Do(func() {
		shared.plane, shared.err = start("--ephemeral", "--secure-port=0", byHand, noNodes)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.plane
}

// byHand leaves workloads to the test: only the test creates the pods of a replica set.
const (
	byHand  = "--controllers=gc,namespace,protection"
	noNodes = "--nodes=0"
)

// startPlane starts a control plane for one test.
func startPlane(t *testing.T, args ...string) *plane {
	t.Helper()
	p, err := start(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// missing skips on a developer's machine and fails in CI, which installs what the tests need.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing, and CI is to install it (see .ci/run)", what)
	}
	t.Skipf("%s is missing", what)
}

// kubectl is one way to run kubectl against a control plane.
type kubectl struct {
	name    string
	command []string
	plane   *plane
}

// kubectls are all ways to run kubectl on this machine.
func kubectls(t *testing.T, p *plane) []kubectl {
	t.Helper()
	all := []kubectl{{"coppice kubectl", []string{binary, "kubectl"}, p}}
	if path, err := exec.LookPath("kubectl"); err == nil {
		all = append(all, kubectl{"kubectl", []string{path}, p})
	}
	return all
}

// withKubectl runs a test of the server with one kubectl, the installed one if there is one, in a fresh namespace. The
// test runs beside others.
func withKubectl(t *testing.T, test func(t *testing.T, k kubectl, namespace string)) {
	t.Helper()
	t.Parallel()
	all := kubectls(t, sharedPlane(t))
	k := all[len(all)-1]
	test(t, k, newNamespace(t, k))
}

// eachKubectl runs a test of what kubectl does with every kubectl, in a fresh namespace each, beside other tests.
func eachKubectl(t *testing.T, test func(t *testing.T, k kubectl, namespace string)) {
	t.Parallel()
	p := sharedPlane(t)
	for _, k := range kubectls(t, p) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k, newNamespace(t, k))
		})
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Run("kubectl", func(t *testing.T) { missing(t, "kubectl") })
	}
}

var namespaceNumber atomic.Int64

func newNamespace(t *testing.T, k kubectl) string {
	t.Helper()
	name := fmt.Sprintf("e2e-%d", namespaceNumber.Add(1))
	k.run(t, "create", "namespace", name)
	return name
}

// try runs kubectl and returns its output.
func (k kubectl) try(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, k.command[0], append(append([]string{}, k.command[1:]...), args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+k.plane.kubeconfig)
	command.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err = command.Run()
	return out.String(), errs.String(), err
}

// begin starts kubectl and returns its stdout. It ends with the test, or after patience.
func (k kubectl) begin(t *testing.T, args ...string) *bufio.Reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	command := exec.CommandContext(ctx, k.command[0], append(slices.Clone(k.command[1:]), args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+k.plane.kubeconfig)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = command.Wait()
	})
	return bufio.NewReader(out)
}

// readUntil reads what kubectl prints up to a line.
func readUntil(t *testing.T, out *bufio.Reader, want string) {
	t.Helper()
	for line := ""; strings.TrimSpace(line) != want; {
		var err error
		if line, err = out.ReadString('\n'); err != nil {
			t.Fatalf("the output ends with %q, before %s: %v", line, want, err)
		}
	}
}

// run runs kubectl, which must succeed, and returns its standard output.
func (k kubectl) run(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, err := k.try(t, "", args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", k.name, strings.Join(args, " "), err, out, errs)
	}
	return strings.TrimSpace(out)
}

// apply creates objects from a manifest.
func (k kubectl) apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	if out, errs, err := k.try(t, manifest, "apply", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("%s apply: %v\n%s%s\n%s", k.name, err, out, errs, manifest)
	}
}

// get reads one field of an object.
func (k kubectl) get(t *testing.T, namespace, object, jsonpath string) string {
	t.Helper()
	return k.run(t, "get", "-n", namespace, object, "-o", "jsonpath="+jsonpath)
}

// names lists the objects of some resources in a namespace: "configmap/a pod/b".
func (k kubectl) names(t *testing.T, namespace, resources string, more ...string) []string {
	t.Helper()
	args := append([]string{"get", "-n", namespace, resources, "-o", "name"}, more...)
	return strings.Fields(k.run(t, args...))
}

// rootCAConfigMap is the config map that every namespace has.
const rootCAConfigMap = "kube-root-ca.crt"

// own removes from names the objects that every namespace has.
func own(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == "configmap/"+rootCAConfigMap })
}

// eventuallyNames waits until exactly these objects exist.
func (k kubectl) eventuallyNames(t *testing.T, namespace, resources string, want ...string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		got := k.names(t, namespace, resources)
		if strings.Join(got, " ") == strings.Join(want, " ") {
			return ""
		}
		return fmt.Sprintf("%s in %s: %v, want %v", resources, namespace, got, want)
	})
}

// settle waits until collection is at rest.
func (k kubectl) settle(t *testing.T) {
	t.Helper()
	awaitRest(t, func() (string, error) {
		out, errs, err := k.try(t, "", "get", "--raw", "/settled?timeout=30s")
		return out + errs, err
	})
}

// awaitRest asks whether collection is at rest until it is. The server lets a request wait for half a minute at most.
func awaitRest(t *testing.T, ask func() (answer string, err error)) {
	t.Helper()
	eventually.Agrees(t, func() string {
		answer, err := ask()
		if err != nil {
			return fmt.Sprintf("%v: %s", err, answer)
		}
		var s report.Settlement
		if json.Unmarshal([]byte(answer), &s) != nil || !s.Settled {
			return "no rest: " + answer
		}
		return ""
	})
}

// credentials are the parts of a kubeconfig, as files for curl.
type credentials struct{ authority, certificate, key string }

func (p *plane) credentials(t *testing.T) credentials {
	t.Helper()
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	user, cluster := config.AuthInfos[current.AuthInfo], config.Clusters[current.Cluster]
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return credentials{
		authority:   write("ca.crt", cluster.CertificateAuthorityData),
		certificate: write("client.crt", user.ClientCertificateData),
		key:         write("client.key", user.ClientKeyData),
	}
}

// curl runs curl, which must get an answer, and returns the status code and body.
func curl(t *testing.T, args ...string) (code, body string) {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		missing(t, "curl")
	}
	out, err := exec.Command(path, append([]string{"-sS", "-w", "\n%{http_code}", "--max-time", "30"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("curl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	text := strings.TrimSpace(string(out))
	at := strings.LastIndex(text, "\n")
	return text[at+1:], text[:max(at, 0)]
}

// curl calls the server as its administrator.
func (p *plane) curl(t *testing.T, args ...string) (code, body string) {
	t.Helper()
	c := p.credentials(t)
	return curl(t, append([]string{"--cacert", c.authority, "--cert", c.certificate, "--key", c.key}, args...)...)
}

// proxy runs kubectl proxy for one test and returns its URL.
func (k kubectl) proxy(t *testing.T) string {
	t.Helper()
	command := exec.Command(k.command[0], append(append([]string{}, k.command[1:]...), "proxy", "--port=0")...)
	command.Env = append(os.Environ(), "KUBECONFIG="+k.plane.kubeconfig)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // SIGINT may be ignored, as a shell has it for what runs in the background
		_ = command.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + strings.TrimSpace(line[strings.LastIndex(line, " ")+1:])
}
