package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/freeport"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// coppice runs the binary to its end and returns its output and its exit code.
func coppice(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	var out, errs strings.Builder
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// TestStateSurvivesKill kills the process and starts it again on its data.
func TestStateSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir, "--secure-port=0")
	k := kubectls(t, p)[0]
	k.apply(t, "default", configMap("owner", ""))
	owner := ownerOf("v1", "ConfigMap", "owner", uidOf(t, k, "default", "configmap/owner"), true)
	k.apply(t, "default", configMap("dependent", owner))
	p.kill(t)

	p = startPlane(t, "--data-dir", dir, "--secure-port=0")
	k = kubectls(t, p)[0]
	if got := strings.Join(own(k.names(t, "default", "configmaps")), " "); got != "configmap/dependent configmap/owner" {
		t.Fatalf("config maps after the kill: %s", got)
	}
	k.run(t, "delete", "-n", "default", "configmap", "owner")
	k.eventuallyNames(t, "default", "configmaps", "configmap/"+rootCAConfigMap)
}

// TestKubeconfigSurvivesRestart keeps using one kubeconfig across a restart on the same port.
func TestKubeconfigSurvivesRestart(t *testing.T) {
	dir, port := t.TempDir(), freeport.Find(t)
	p := startPlane(t, "--data-dir", dir, "--secure-port="+port)
	kept := filepath.Join(t.TempDir(), "kubeconfig")
	data, err := os.ReadFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	p = startPlane(t, "--data-dir", dir, "--secure-port="+port)
	p.kubeconfig = kept
	kubectls(t, p)[0].run(t, "get", "namespaces")
}

// TestSecondUpSaysWhoHoldsTheData starts a second control plane on the same data.
func TestSecondUpSaysWhoHoldsTheData(t *testing.T) {
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir, "--secure-port=0")
	_, errs, code := coppice(t, "up", "--data-dir", dir, "--secure-port=0")
	if code != 1 || !oneLine(errs) || !strings.Contains(errs, "in use by process") || !strings.Contains(errs, p.server) {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestStopsCleanly sends Ctrl-C with a watch open: the control plane does not wait for its connection. That takes 2 s on
// an idle machine.
func TestStopsCleanly(t *testing.T) {
	const grace = time.Minute // for which k8s.io/apiserver waits for connections unless it is told otherwise
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0")
	k := kubectls(t, p)[0]
	k.run(t, "create", "configmap", "listed")
	watch := k.begin(t, "get", "configmaps", "--watch", "-o", "name")
	readUntil(t, watch, "configmap/listed")
	k.run(t, "create", "configmap", "watched")
	readUntil(t, watch, "configmap/watched")
	dir := filepath.Dir(p.kubeconfig)
	began := time.Now()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > grace {
		t.Errorf("stopping took %s: it has waited for the connection of the watch", took)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("an ephemeral control plane left %s behind", dir)
	}
}

func oneLine(s string) bool { return strings.Count(strings.TrimSpace(s), "\n") == 0 }

// TestClearErrors checks that errors at start-up are reported in one line.
func TestClearErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken, _ := net.SplitHostPort(l.Addr().String())

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("not a directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := t.TempDir()
	database := filepath.Join(broken, "etcd", "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(database), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(database, []byte(strings.Repeat("this is no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"port in use":          {[]string{"up", "--ephemeral", "--secure-port=" + taken}, 1, "address already in use; choose another port with --secure-port"},
		"data dir is a file":   {[]string{"up", "--data-dir", file, "--secure-port=0"}, 1, "data directory"},
		"data dir is broken":   {[]string{"up", "--data-dir", broken, "--secure-port=0"}, 1, "the database " + database + " is damaged: "},
		"unknown flag":         {[]string{"up", "--no-such-flag"}, 2, "unknown flag: --no-such-flag; see coppice up --help"},
		"bad port":             {[]string{"up", "--secure-port=70000"}, 2, "--secure-port 70000 is not between 0 and 65535"},
		"port is no number":    {[]string{"up", "--secure-port=https"}, 2, `invalid argument "https" for "--secure-port"`},
		"bad address":          {[]string{"up", "--bind-address=localhost"}, 2, `--bind-address "localhost" is not an IP address`},
		"contradiction":        {[]string{"up", "--ephemeral", "--data-dir", broken}, 2, "choose one"},
		"bad log level":        {[]string{"up", "--log-level=loud"}, 2, "choose debug, info, warn or error"},
		"an argument":          {[]string{"up", "now"}, 2, `takes no arguments, got "now"`},
		"unknown command":      {[]string{"down"}, 2, `unknown command "down"`},
		"kubectl, never an up": {[]string{"kubectl", "get", "pods"}, 1, `start one with "coppice up"`},
		"version format":       {[]string{"version", "-o", "xml"}, 2, "choose json or yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := coppice(t, c.args...)
			if code != c.code || !strings.Contains(errs, c.want) || !oneLine(errs) || out != "" {
				t.Errorf("exit code %d, want %d; stdout %q; stderr does not say %q in one line:\n%s", code, c.code, out, c.want, errs)
			}
		})
	}
}

func TestVersionIsThatOfTheBuild(t *testing.T) {
	out, _, code := coppice(t, "version", "-o", "json")
	var v map[string]string
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	minors := version.Minors()
	if last := minors[len(minors)-1]; !strings.HasPrefix(v["kubernetes"], "v"+last+".") {
		t.Errorf("Kubernetes version %q, want one of %s", v["kubernetes"], last)
	}
	k := kubectls(t, sharedPlane(t))[0]
	if served := k.run(t, "get", "--raw", "/version"); !strings.Contains(served, v["kubernetes"]) {
		t.Errorf("/version says %s, coppice version says %s", served, v["kubernetes"])
	}
}

// TestWriteKubeconfig keeps the other entries of a kubeconfig.
func TestWriteKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	other := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"other","cluster":{"server":"https://127.0.0.1:1"}}],"users":[],"contexts":[{"name":"other","context":{"cluster":"other","user":""}}],"current-context":"other"}`
	if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--write-kubeconfig", path)
	p.kubeconfig = path
	k := kubectls(t, p)[0]
	k.run(t, "get", "namespaces")
	if got := k.run(t, "config", "get-contexts", "-o", "name"); got != "coppice\nother" {
		t.Errorf("contexts: %s", got)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %s", info.Mode())
	}
}

// TestRequestsWithoutCredentialsAreRefused checks that requests without a credential, or with a bad one, are refused, except for
// health.
func TestRequestsWithoutCredentialsAreRefused(t *testing.T) {
	p := sharedPlane(t)
	authority := p.credentials(t).authority
	for path, want := range map[string]string{
		"/healthz": "200", "/livez": "200", "/readyz": "200",
		"/api": "401", "/apis": "401", "/api/v1/namespaces": "401", "/version": "401", "/openapi/v3": "401", "/metrics": "401", "/debug/pprof/": "401",
	} {
		if code, body := curl(t, "--cacert", authority, p.server+path); code != want {
			t.Errorf("%s without a credential answered %s, want %s: %s", path, code, want, body)
		}
	}
	if code, body := curl(t, "--cacert", authority, "-H", "Authorization: Bearer guess", p.server+"/api/v1/namespaces"); code != "401" {
		t.Errorf("a bad token answered %s: %s", code, body)
	}
	if _, err := exec.Command("curl", "-sS", "--cacert", authority, "--tls-max", "1.2", p.server+"/readyz").CombinedOutput(); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
}

// TestNoKeyIsReadableByOthers looks at every file that a control plane writes.
func TestNoKeyIsReadableByOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	startPlane(t, "--data-dir", dir, "--secure-port=0")
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	})
	if err != nil || files < 5 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// TestWithoutCollector deletes without a collector: nothing cascades, and no finalizer is added
// that would never be removed.
func TestWithoutCollector(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--enable-garbage-collector=false", byHand, noNodes)
	k := kubectls(t, p)[0]
	for _, policy := range []string{"background", "foreground", "orphan"} {
		namespace := newNamespace(t, k)
		owned(t, k, namespace)
		k.run(t, "delete", "-n", namespace, "replicaset", "frontend", "--cascade="+policy, "--timeout=2m")
		k.eventuallyNames(t, namespace, "pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
		if got := k.get(t, namespace, "pods", "{.items[*].metadata.ownerReferences[*].name}"); got != "frontend frontend frontend" {
			t.Errorf("%s: owners of the pods: %s", policy, got)
		}
		k.run(t, "delete", "namespace", namespace)
	}
}
