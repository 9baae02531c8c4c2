package e2e

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// collector is a running coppice collect.
type collector struct {
	command *exec.Cmd
	synced  chan struct{} // closed when it has said that it collects
	exited  chan error

	mu     sync.Mutex
	stderr bytes.Buffer // guarded by mu
}

// Write takes in what the process says on stderr.
func (c *collector) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.Write(p)
}

func (c *collector) log() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// startCollector runs coppice collect against a control plane.
func startCollector(t *testing.T, p *plane, args ...string) *collector {
	t.Helper()
	c := &collector{synced: make(chan struct{}), exited: make(chan error, 1)}
	c.command = exec.Command(binary, append([]string{"collect", "--bind-address=127.0.0.1:0", "--kubeconfig", p.kubeconfig}, args...)...)
	c.command.Stderr = c
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "collecting "+p.server) {
				close(c.synced)
			}
		}
		_, _ = io.Copy(io.Discard, stdout)
		c.exited <- c.command.Wait()
	}()
	t.Cleanup(func() {
		if c.command.ProcessState == nil {
			c.stop(t)
		}
	})
	return c
}

// stop sends Ctrl-C and waits for the process to end, which must be clean.
func (c *collector) stop(t *testing.T) {
	t.Helper()
	if err := c.command.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	select {
	case err := <-c.exited:
		if err != nil {
			t.Errorf("coppice collect did not stop cleanly: %v: %s", err, c.log())
		}
	case <-time.After(patience):
		_ = c.command.Process.Kill()
		t.Errorf("coppice collect does not stop: %s", c.log())
	}
}

func (c *collector) waitSynced(t *testing.T) {
	t.Helper()
	select {
	case <-c.synced:
	case <-time.After(patience):
		t.Fatalf("coppice collect does not collect: %s", c.log())
	}
}

// address is where the collector answers.
func (c *collector) address(t *testing.T) string {
	t.Helper()
	var address string
	eventually(t, func() string {
		for line := range strings.Lines(c.log()) {
			if _, after, ok := strings.Cut(line, "flag=--bind-address address="); ok {
				address = strings.TrimSpace(after)
				return ""
			}
		}
		return "no address in the log: " + c.log()
	})
	return address
}

// ourKubectl is the built-in kubectl against a control plane.
func ourKubectl(p *plane) kubectl {
	return kubectl{"coppice kubectl", []string{binary, "kubectl"}, p}
}

// TestCollectFromOutside has a control plane without controllers of its own: a
// collector in another process carries out all three policies, and takes namespaces
// apart.
func TestCollectFromOutside(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	for policy := range map[string]bool{"background": true, "foreground": true, "orphan": true} {
		k.run(t, "create", "namespace", policy)
		owned(t, k, policy)
		k.run(t, "delete", "-n", policy, "replicaset", "frontend", "--cascade="+policy, "--wait=false")
	}
	// Nobody has done anything: the marks are there.
	if got := k.get(t, "foreground", "replicaset/frontend", "{.metadata.finalizers}"); !strings.Contains(got, "foregroundDeletion") {
		t.Errorf("finalizers of an owner in foreground deletion: %s", got)
	}
	k.run(t, "create", "namespace", "going")
	k.apply(t, "going", configMap("content", ""))
	k.run(t, "delete", "namespace", "going", "--wait=false")

	c := startCollector(t, p, "--controllers=gc,namespace")
	c.waitSynced(t)
	k.eventuallyNames(t, "foreground", "replicasets,pods")
	k.eventuallyNames(t, "orphan", "replicasets,pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
	if got := k.get(t, "orphan", "pods", "{.items[*].metadata.ownerReferences}"); got != "" {
		t.Errorf("owner references of orphans: %s", got)
	}
	// Its owner went before the collector came, so nobody has seen it go.
	k.eventuallyNames(t, "background", "replicasets,pods")
	eventually(t, func() string {
		return strings.Join(k.names(t, "default", "namespaces", "--field-selector=metadata.name=going"), " ")
	})
	if log := c.log(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Errorf("a run without trouble is logged as:\n%s", log)
	}
	checkDiagnostics(t, k, c)
}

// TestCollectWithItsOwnCredential: the credential that a control plane writes for a
// collector outside is enough for all that it does, and for nothing else.
func TestCollectWithItsOwnCredential(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "collector")
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=namespace,protection", "--write-collector-kubeconfig", file)
	k := ourKubectl(p)
	c := startCollector(t, p, "--kubeconfig", file)
	c.waitSynced(t)
	for policy := range map[string]bool{"background": true, "foreground": true, "orphan": true} {
		k.run(t, "create", "namespace", policy)
		owned(t, k, policy)
		k.run(t, "delete", "-n", policy, "replicaset", "frontend", "--cascade="+policy, "--wait=false")
	}
	k.eventuallyNames(t, "background", "replicasets,pods")
	k.eventuallyNames(t, "foreground", "replicasets,pods")
	k.eventuallyNames(t, "orphan", "replicasets,pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
	if log := c.log(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Errorf("a run without trouble is logged as:\n%s", log)
	}
	for _, args := range [][]string{{"get", "secrets", "-A"}, {"get", "pods", "-n", "orphan", "-o", "yaml"}, {"delete", "pod", "-n", "orphan", "frontend-0"}, {"create", "namespace", "mine"}} {
		out, err := exec.Command(binary, append([]string{"kubectl", "--kubeconfig", file}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "orbidden") {
			t.Errorf("kubectl %v: %v %s", args, err, out)
		}
	}
}

// checkDiagnostics asks a collector everything that can be asked.
func checkDiagnostics(t *testing.T, k kubectl, c *collector) {
	t.Helper()
	k.apply(t, "default", configMap("owner", ""))
	uid := uidOf(t, k, "default", "configmap/owner")
	k.apply(t, "default", configMap("dependent", ownerOf("v1", "ConfigMap", "owner", uid, false)))
	address := c.address(t)
	graph := func(args ...string) string {
		out, err := exec.Command(binary, append([]string{"graph", "--address", address}, args...)...).Output()
		if err != nil {
			t.Fatalf("coppice graph: %v", err)
		}
		return string(out)
	}
	eventually(t, func() string {
		if dot := graph("--uid", uid); !strings.Contains(dot, `name="dependent"`) || !strings.HasPrefix(dot, "strict digraph") {
			return dot
		}
		return ""
	})
	if err := xml.Unmarshal([]byte(graph("--format=svg")), new(struct{})); err != nil {
		t.Errorf("the drawing is no XML: %v", err)
	}
	var picture struct{ Objects, References []any }
	if err := json.Unmarshal([]byte(graph("--format=json", "--uid="+uid)), &picture); err != nil || len(picture.Objects) != 2 || len(picture.References) != 1 {
		t.Errorf("the graph as JSON: %+v, %v", picture, err)
	}
	for path, want := range map[string]string{
		"/readyz":  "ok",
		"/healthz": "ok",
		"/status":  `"synced": true`,
		"/records": `"action": "release"`,
		"/metrics": "coppice_synced 1",
	} {
		if code, body := curl(t, address+path); code != "200" || !strings.Contains(body, want) {
			t.Errorf("%s: %s, without %s: %.500s", path, code, want, body)
		}
	}
	_, body := curl(t, address+"/metrics")
	for _, want := range []string{
		`coppice_graph_objects{resource="configmaps"}`, `coppice_decisions_total{decision="release"}`,
		`coppice_requests_total{code="200",verb="patch"}`, `coppice_monitor_state{resource="pods",state="synced"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics do not say %s", want)
		}
	}
	if code, _ := curl(t, "-H", "Host: evil.example", address+"/status"); code != "403" {
		t.Errorf("a request for another host is answered with %s", code)
	}
}

// TestCollectHandsOver stops the leader of two: the other takes over within seconds.
func TestCollectHandsOver(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	first := startCollector(t, p, "--leader-elect")
	first.waitSynced(t)
	second := startCollector(t, p, "--leader-elect")
	address := second.address(t)
	eventually(t, func() string {
		if code, body := curl(t, address+"/readyz"); code != "200" || !strings.Contains(body, "standing by") {
			return code + " " + body
		}
		return ""
	})
	if code, body := curl(t, address+"/status"); code != "503" || !strings.Contains(body, "leads") {
		t.Errorf("the status of one that stands by: %s %s", code, body)
	}
	select {
	case <-second.synced:
		t.Fatal("two collect at the same time")
	default:
	}
	owned(t, k, "default")
	first.stop(t)
	stopped := time.Now()
	k.run(t, "delete", "replicaset", "frontend", "--cascade=foreground", "--wait=false")
	second.waitSynced(t)
	t.Logf("handed over in %s", time.Since(stopped).Round(time.Millisecond))
	if took := time.Since(stopped); took >= 15*time.Second { // then the lease has run out
		t.Errorf("the second took over after %s", took)
	}
	k.eventuallyNames(t, "default", "replicasets,pods")
	second.stop(t)
	if holder := k.get(t, "kube-system", "lease/coppice", "{.spec.holderIdentity}"); holder != "" {
		t.Errorf("the lease is left behind, held by %s", holder)
	}
}

// TestCollectOutlivesItsServer kills the server. A collector waits for it, and goes on
// when it is back; one that holds a Lease gives up when it cannot renew it, for
// another may have taken over.
func TestCollectOutlivesItsServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir, "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	owned(t, k, "default")
	waiting := startCollector(t, p)
	leading := startCollector(t, p, "--leader-elect")
	waiting.waitSynced(t)
	leading.waitSynced(t)
	p.kill(t)

	var exit *exec.ExitError
	select {
	case err := <-leading.exited:
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(leading.log(), "coppice: lost the lease kube-system/coppice") {
			t.Errorf("a leader without a server: %v: %s", err, leading.log())
		}
	case <-time.After(patience):
		t.Error("a leader without a server goes on")
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(p.server, "https://"), ":")
	again := startPlane(t, "--data-dir", dir, "--secure-port="+port, "--controllers=")
	k = ourKubectl(again)
	k.run(t, "delete", "replicaset", "frontend", "--cascade=foreground", "--wait=false")
	k.eventuallyNames(t, "default", "replicasets,pods")
}

// TestCollectObserveOnly decides and records, and changes nothing.
func TestCollectObserveOnly(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	owned(t, k, "default")
	before := k.run(t, "get", "pods,events,leases", "-A", "-o", "jsonpath={range .items[*]}{.metadata.uid}{.metadata.resourceVersion} {end}")
	k.run(t, "delete", "replicaset", "frontend", "--cascade=background")
	c := startCollector(t, p, "--observe-only")
	c.waitSynced(t)
	address := c.address(t)
	eventually(t, func() string {
		if _, body := curl(t, address+"/records"); strings.Count(body, `"name": "frontend-`) < 3 {
			return "the records do not name the three pods: " + body
		}
		return ""
	})
	after := k.run(t, "get", "pods,events,leases", "-A", "-o", "jsonpath={range .items[*]}{.metadata.uid}{.metadata.resourceVersion} {end}")
	if before != after {
		t.Errorf("changed by one who only observes: %s, then %s", before, after)
	}
	_, body := curl(t, address+"/metrics")
	for _, verb := range []string{"delete", "patch", "update", "create"} {
		if strings.Contains(body, `verb="`+verb+`"`) {
			t.Errorf("requests to %s were sent", verb)
		}
	}
}

// TestCollectPauses has the breaker stop deletions, and somebody resume them.
func TestCollectPauses(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	owned(t, k, "default")
	c := startCollector(t, p, "--breaker-share=0.1", "--breaker-min=2", "--breaker-window=1h")
	c.waitSynced(t)
	address := c.address(t)
	k.run(t, "delete", "replicaset", "frontend", "--cascade=background")
	eventually(t, func() string {
		if _, body := curl(t, address+"/metrics"); !strings.Contains(body, `coppice_breaker_paused{kind="Pod"} 1`) {
			return "not paused"
		}
		return ""
	})
	if left := k.names(t, "default", "pods"); len(left) != 1 {
		t.Errorf("of three pods, two may go: left %v", left)
	}
	if code, body := curl(t, "-X", "POST", address+"/resume?kind=ReplicaSet.apps"); code != "404" {
		t.Errorf("resuming what is not paused: %s %s", code, body)
	}
	if code, body := curl(t, "-X", "POST", address+"/resume?kind=Pod"); code != "200" {
		t.Errorf("resuming: %s %s", code, body)
	}
	k.eventuallyNames(t, "default", "pods")
}

// TestCollectWithoutRights names what is missing, in one line.
func TestCollectWithoutRights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir, "--secure-port=0")
	command := exec.Command(binary, "collect", "--bind-address=0", "--kubeconfig", strangerOf(t, p, dir))
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("exit: %v", err)
	}
	line := strings.TrimSpace(string(out))
	if strings.Contains(line, "\n") || !strings.Contains(line, p.server) || !strings.Contains(line, "stranger") && !strings.Contains(line, "list") {
		t.Errorf("a stranger is told: %s", line)
	}
	t.Log(line)
}

// strangerOf is a kubeconfig of somebody whom a control plane knows and allows nothing.
func strangerOf(t *testing.T, p *plane, dir string) string {
	t.Helper()
	pair := func(name string) []byte {
		matches, err := filepath.Glob(filepath.Join(dir, "pki", name))
		if err != nil || len(matches) != 1 {
			t.Fatalf("%s in %s: %v %v", name, dir, matches, err)
		}
		data, err := os.ReadFile(matches[0])
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		return block.Bytes
	}
	authority, err := x509.ParseCertificate(pair("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	authorityKey, err := parseKey(pair("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "stranger"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, &key.PublicKey, authorityKey)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	user := config.Contexts[config.CurrentContext].AuthInfo
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		ClientKeyData:         pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
	path := filepath.Join(t.TempDir(), "stranger")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func parseKey(der []byte) (any, error) {
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	return x509.ParsePKCS8PrivateKey(der)
}

// TestDiagnosticsOfAControlPlane asks the API server about the controllers in its
// process: administrators get an answer, others none.
func TestDiagnosticsOfAControlPlane(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	for path, want := range map[string]string{
		"/debug/controllers/garbagecollector/graph":             "strict digraph",
		"/debug/controllers/garbagecollector/graph?format=json": `"objects"`,
		"/debug/controllers/garbagecollector/graph?format=svg":  "<svg",
		"/status":          `"synced": true`,
		"/records":         "[",
		"/coppice/metrics": "coppice_synced 1",
		"/metrics":         "apiserver_request_total",
	} {
		if out := k.run(t, "get", "--raw", path); !strings.Contains(out, want) {
			t.Errorf("%s: without %s: %.300s", path, want, out)
		}
	}
	for _, path := range []string{"/debug/controllers/garbagecollector/graph", "/status", "/records", "/coppice/metrics"} {
		if code, body := curl(t, "-k", p.server+path); code != "401" && code != "403" {
			t.Errorf("a caller without a credential gets %s for %s: %.100s", code, path, body)
		}
	}
}

// TestManifestsApply puts what is in deploy onto a control plane.
func TestManifestsApply(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0")
	k := ourKubectl(p)
	before := k.names(t, "default", "clusterroles,clusterrolebindings") // those of every control plane
	deploy := filepath.Join("..", "..", "deploy", "kustomize")
	for _, variant := range []string{"base", "observe-only"} {
		k.run(t, "apply", "-k", filepath.Join(deploy, variant))
		if replicas := k.get(t, "coppice-system", "deployment/coppice", "{.spec.replicas}"); replicas != "2" {
			t.Errorf("%s: %s replicas", variant, replicas)
		}
		rules := k.get(t, "", "clusterrole/coppice", "{.rules}")
		if mayDelete := strings.Contains(rules, "delete"); mayDelete != (variant == "base") {
			t.Errorf("%s: rules %s", variant, rules)
		}
		arguments := k.get(t, "coppice-system", "deployment/coppice", "{.spec.template.spec.containers[0].args}")
		checkArguments(t, p, arguments)
		k.run(t, "delete", "-k", filepath.Join(deploy, variant), "--ignore-not-found") // its namespace takes some of it along
		k.eventuallyNames(t, "default", "clusterroles,clusterrolebindings", before...)
	}
}

// TestCollectAsItsServiceAccount runs what the manifests have a pod run, under the
// identity that they give it, and with no other right: all three policies are carried out.
func TestCollectAsItsServiceAccount(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	k.run(t, "apply", "-k", filepath.Join("..", "..", "deploy", "kustomize", "base"))
	own := *p
	own.kubeconfig = withToken(t, p, strings.TrimSpace(k.run(t, "create", "token", "coppice", "-n", "coppice-system")))
	var args []string
	if err := json.Unmarshal([]byte(k.get(t, "coppice-system", "deployment/coppice", "{.spec.template.spec.containers[0].args}")), &args); err != nil {
		t.Fatal(err)
	}
	c := startCollector(t, &own, append(args[1:], "--metrics-address=127.0.0.1:0", "--leader-elect-namespace=coppice-system")...)
	c.waitSynced(t)
	for _, policy := range []string{"background", "foreground", "orphan"} {
		k.run(t, "create", "namespace", policy)
		owned(t, k, policy)
		k.run(t, "delete", "-n", policy, "replicaset", "frontend", "--cascade="+policy, "--wait=false")
	}
	k.eventuallyNames(t, "background", "replicasets,pods")
	k.eventuallyNames(t, "foreground", "replicasets,pods")
	k.eventuallyNames(t, "orphan", "replicasets,pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
	if got := k.get(t, "orphan", "pods", "{.items[*].metadata.ownerReferences}"); got != "" {
		t.Errorf("owner references of orphans: %s", got)
	}
	c.stop(t)
	if log := c.log(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"level":"WARN"`) {
		t.Errorf("a run without trouble is logged as:\n%s", log)
	}
	may := func(verb, what string) bool {
		out, _ := exec.Command(binary, "kubectl", "--kubeconfig", own.kubeconfig, "auth", "can-i", verb, what).CombinedOutput()
		return strings.TrimSpace(string(out)) == "yes"
	}
	if !may("get", "/coppice/newest") || may("get", "/coppice/snapshot") || may("create", "pods") || may("update", "configmaps") {
		t.Error("the service account may not do what it has to, or may do more")
	}
}

// withToken is a kubeconfig of a control plane's with a token and no other credential.
func withToken(t *testing.T, p *plane, token string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = &clientcmdapi.AuthInfo{Token: token}
	path := filepath.Join(t.TempDir(), "with-token")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkArguments runs what a manifest has a pod run.
func checkArguments(t *testing.T, p *plane, arguments string) {
	t.Helper()
	var args []string
	if err := json.Unmarshal([]byte(arguments), &args); err != nil || len(args) == 0 || args[0] != "collect" {
		t.Fatalf("arguments of the container: %s, %v", arguments, err)
	}
	args = append(args[1:], "--metrics-address=127.0.0.1:0", "--leader-elect-namespace=coppice-system")
	c := startCollector(t, p, args...)
	c.waitSynced(t)
	if !strings.HasPrefix(strings.TrimSpace(c.log()), "{") {
		t.Errorf("not logged as JSON: %.200s", c.log())
	}
	c.stop(t)
}

// TestUpControllers names controllers that there are none of.
func TestUpControllers(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(binary, "up", "--ephemeral", "--controllers=gc,deployments").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), `"deployments"`) {
		t.Errorf("%v: %s", err, out)
	}
	if lines := strings.Count(string(out), "\n"); lines != 1 {
		t.Errorf("%d lines: %s", lines, fmt.Sprint(string(out)))
	}
}
