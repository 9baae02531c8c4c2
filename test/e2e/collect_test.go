package e2e

import (
	"bufio"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// collector is a running coppice collect.
type collector struct {
	command *exec.Cmd
	synced  chan struct{} // closed when the collector has reported that it collects
	exited  chan error
	stderr  transcript.Transcript
}

// startCollector runs coppice collect against a control plane.
func startCollector(t *testing.T, p *plane, args ...string) *collector {
	t.Helper()
	c := &collector{synced: make(chan struct{}), exited: make(chan error, 1)}
	c.command = exec.Command(binary, append([]string{"collect", "--bind-address=127.0.0.1:0", "--kubeconfig", p.kubeconfig}, args...)...)
	c.command.Stderr = &c.stderr
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	synced := sync.OnceFunc(func() { close(c.synced) })
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "collecting "+p.server) {
				synced()
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
			t.Errorf("coppice collect did not stop cleanly: %v: %s", err, c.stderr.String())
		}
	case <-time.After(patience):
		_ = c.command.Process.Kill()
		t.Errorf("coppice collect does not stop: %s", c.stderr.String())
	}
}

func (c *collector) waitSynced(t *testing.T) {
	t.Helper()
	select {
	case <-c.synced:
	case <-time.After(patience):
		t.Fatalf("coppice collect does not collect: %s", c.stderr.String())
	}
}

// address returns the address of the collector's endpoints.
func (c *collector) address(t *testing.T) string {
	t.Helper()
	var address string
	eventually.Agrees(t, func() string {
		for line := range strings.Lines(c.stderr.String()) {
			if _, after, ok := strings.Cut(line, "flag=--bind-address address="); ok {
				address = strings.TrimSpace(after)
				return ""
			}
		}
		return "no address in the log: " + c.stderr.String()
	})
	return address
}

// ourKubectl is the built-in kubectl against a control plane.
func ourKubectl(p *plane) kubectl {
	return kubectl{"coppice kubectl", []string{binary, "kubectl"}, p}
}

// TestCollectFromOutside has a control plane without controllers of its own: a collector in
// another process carries out all three policies, and empties namespaces.
func TestCollectFromOutside(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	for policy := range map[string]bool{"background": true, "foreground": true, "orphan": true} {
		k.run(t, "create", "namespace", policy)
		owned(t, k, policy)
		k.run(t, "delete", "-n", policy, "replicaset", "frontend", "--cascade="+policy, "--wait=false")
	}
	// No collector has acted yet: the finalizers are there.
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
	// Its owner was deleted before the collector came, so the collector has not seen the
	// deletion.
	k.eventuallyNames(t, "background", "replicasets,pods")
	eventually.Agrees(t, func() string {
		return strings.Join(k.names(t, "default", "namespaces", "--field-selector=metadata.name=going"), " ")
	})
	if log := c.stderr.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Errorf("a run without trouble is logged as:\n%s", log)
	}
	checkDiagnostics(t, k, c)
}

// checkDiagnostics calls every endpoint of a collector.
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
	eventually.Agrees(t, func() string {
		if dot := graph("--output=dot", "--uid", uid); !strings.Contains(dot, `name="dependent"`) || !strings.HasPrefix(dot, "strict digraph") {
			return dot
		}
		return ""
	})
	checkAnswers(t, k, address)
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
		"/records": `"action": "remove-finalizer"`,
		"/metrics": `coppice_synced{controller="garbage-collector-controller"} 1`,
	} {
		if code, body := curl(t, address+path); code != "200" || !strings.Contains(body, want) {
			t.Errorf("%s: %s, without %s: %.500s", path, code, want, body)
		}
	}
	_, body := curl(t, address+"/metrics")
	for _, want := range []string{
		`coppice_graph_objects{resource="configmaps"}`, `coppice_decisions_total{decision="remove-finalizer"}`,
		`coppice_requests_total{code="200",controller="garbage-collector-controller",verb="patch"}`, `coppice_monitor_state{resource="pods",state="synced"} 1`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics do not say %s", want)
		}
	}
	if code, _ := curl(t, "-H", "Host: evil.example", address+"/status"); code != "403" {
		t.Errorf("a request for another host is answered with %s", code)
	}
}

// checkAnswers asks a collector that knows two ConfigMaps, as users with a token: one who may see them gets
// the preview that is made from the whole cluster, and one who may not gets none.
func checkAnswers(t *testing.T, k kubectl, address string) {
	t.Helper()
	tokens := map[string]string{}
	for _, name := range []string{"admin", "nobody"} {
		k.run(t, "create", "serviceaccount", name, "-n", "default")
		tokens[name] = strings.TrimSpace(k.run(t, "create", "token", name, "-n", "default"))
	}
	k.run(t, "create", "clusterrolebinding", "admin", "--clusterrole=cluster-admin", "--serviceaccount=default:admin")
	ask := func(user string, args ...string) (stdout, stderr string, code int) {
		return coppice(t, append(args, "--kubeconfig", k.plane.kubeconfig, "--namespace=default", "--token", tokens[user], "--address", address)...)
	}
	for _, of := range []struct {
		targets []string
		names   string
	}{
		{[]string{"configmap/owner"}, "ConfigMap default/dependent"},
		{[]string{"configmaps", "--all"}, "ConfigMap default/dependent"},
		{[]string{"configmaps,services", "-l", "app notin (web)"}, "ConfigMap default/dependent"},
		{[]string{"configmap/owner", "-o", "tree"}, "ConfigMap default/dependent"},
		{[]string{"configmap/owner", "-o", "dot"}, "ConfigMap/dependent"},
		{[]string{"configmap/owner", "-o", "svg"}, "dependent"},
	} {
		args := append([]string{"preview", "delete"}, of.targets...)
		whole, _, _ := coppice(t, append(args, "--kubeconfig", k.plane.kubeconfig, "--namespace=default", "--address=none")...)
		if asked, stderr, code := ask("admin", args...); code != 0 || asked != whole || !strings.Contains(asked, of.names) {
			t.Errorf("the collector predicts for %v (%d):\n%s%s\nthe cluster:\n%s", of.targets, code, asked, stderr, whole)
		}
	}
	if asked, stderr, code := ask("admin", "explain", "configmap/owner", "-o", "json"); code != 0 || !strings.Contains(asked, `"on": "Request"`) {
		t.Errorf("the collector explains (%d): %s%s", code, asked, stderr)
	}
	if asked, stderr, code := ask("nobody", "preview", "delete", "configmap/owner"); code == 0 || asked != "" || !strings.Contains(stderr, "you may not list configmaps") {
		t.Errorf("a user who may list nothing is told (%d): %s%s", code, asked, stderr)
	}
	if _, stderr, code := ask("admin", "preview", "delete", "configmaps", "-l", "app=none"); code == 0 || !strings.Contains(stderr, "no objects found") {
		t.Errorf("labels that nothing has (%d): %s", code, stderr)
	}
}

// TestCollectHandsOver stops the leader of two: it releases the lease, so that the other takes over before the lease has
// run out.
func TestCollectHandsOver(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	first := startCollector(t, p, "--leader-elect")
	first.waitSynced(t)
	second := startCollector(t, p, "--leader-elect")
	address := second.address(t)
	eventually.Agrees(t, func() string {
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
	holder := func() string { return k.get(t, "kube-system", "lease/coppice", "{.spec.holderIdentity}") }
	released := holder()
	first.stop(t)
	if holder := holder(); released == "" || holder == released {
		t.Errorf("the lease was held by %q, and is held by %q after its holder has stopped", released, holder)
	}
	k.run(t, "delete", "replicaset", "frontend", "--cascade=foreground", "--wait=false")
	second.waitSynced(t)
	k.eventuallyNames(t, "default", "replicasets,pods")
	second.stop(t)
	if holder := holder(); holder != "" {
		t.Errorf("the lease is left behind, held by %s", holder)
	}
}

// TestCollectOutlivesItsServer kills the server. A collector waits for it, and continues when it
// is back; one that holds a Lease stands by when it cannot renew it, since another may have taken
// over. With --leader-elect=cold, it exits.
func TestCollectOutlivesItsServer(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freeport.Find(t)
	p := startPlane(t, "--data-dir", dir, "--secure-port="+port, "--controllers=")
	k := ourKubectl(p)
	owned(t, k, "default")
	waiting := startCollector(t, p)
	leading := startCollector(t, p, "--leader-elect")
	cold := startCollector(t, p, "--leader-elect=cold", "--leader-elect-namespace=default")
	waiting.waitSynced(t)
	leading.waitSynced(t)
	cold.waitSynced(t)
	p.kill(t)

	var exit *exec.ExitError
	select {
	case err := <-cold.exited:
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(cold.stderr.String(), "coppice: lost the lease default/coppice") {
			t.Errorf("a leader without a server: %v: %s", err, cold.stderr.String())
		}
	case <-time.After(patience):
		t.Error("a leader without a server goes on")
	}
	eventually.Agrees(t, func() string {
		if text := leading.stderr.String(); !strings.Contains(text, "not leading any more") || !strings.Contains(text, "lost the lease kube-system/coppice") {
			return "the leader does not stand by: " + text
		}
		return ""
	})
	again := startPlane(t, "--data-dir", dir, "--secure-port="+port, "--controllers=")
	k = ourKubectl(again)
	k.run(t, "delete", "replicaset", "frontend", "--cascade=foreground", "--wait=false")
	k.eventuallyNames(t, "default", "replicasets,pods")
}

// TestCollectObserveOnly decides and records, and changes nothing.
func TestCollectObserveOnly(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=", noNodes) // a node renews its Lease
	k := ourKubectl(p)
	owned(t, k, "default")
	before := k.run(t, "get", "pods,events,leases", "-A", "-o", "jsonpath={range .items[*]}{.metadata.uid}{.metadata.resourceVersion} {end}")
	k.run(t, "delete", "replicaset", "frontend", "--cascade=background")
	c := startCollector(t, p, "--observe-only")
	c.waitSynced(t)
	address := c.address(t)
	eventually.Agrees(t, func() string {
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

// TestCollectPauses has the breaker pause deletions, and resumes them by hand.
func TestCollectPauses(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	owned(t, k, "default")
	c := startCollector(t, p, "--breaker-share=0.1", "--breaker-min=2", "--breaker-window=1h")
	c.waitSynced(t)
	address := c.address(t)
	k.run(t, "delete", "replicaset", "frontend", "--cascade=background")
	eventually.Agrees(t, func() string {
		if _, body := curl(t, address+"/metrics"); !strings.Contains(body, `coppice_breaker_paused{kind="Pod"} 1`) {
			return "not paused"
		}
		return ""
	})
	oneIsLeft := func() string {
		if left := k.names(t, "default", "pods"); len(left) != 1 {
			return fmt.Sprintf("of three pods, two may go: left %v", left)
		}
		return ""
	}
	eventually.Agrees(t, oneIsLeft) // the other two are on their way
	if problem := oneIsLeft(); problem != "" {
		t.Error(problem)
	}
	if code, body := curl(t, "-X", "POST", address+"/resume?kind=ReplicaSet.apps"); code != "404" {
		t.Errorf("resuming what is not paused: %s %s", code, body)
	}
	if code, body := curl(t, "-X", "POST", address+"/resume?kind=Pod"); code != "200" {
		t.Errorf("resuming: %s %s", code, body)
	}
	k.eventuallyNames(t, "default", "pods")
}

// TestDiagnosticsOfAControlPlane asks the API server about the controllers in its process:
// administrators get an answer, other users do not.
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
		"/coppice/metrics": `coppice_synced{controller="garbage-collector-controller"} 1`,
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

// TestUpControllers names controllers that do not exist.
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
