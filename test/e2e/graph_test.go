package e2e

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

// methods counts the methods of requests.
type methods struct {
	next http.RoundTripper

	mu     sync.Mutex
	counts map[string]int // guarded by mu
}

// RoundTrip implements http.RoundTripper.
func (m *methods) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.counts[r.Method]++
	m.mu.Unlock()
	return m.next.RoundTrip(r)
}

// TestInventoryIsTheCluster: a cluster is read as it is, by reads alone.
func TestInventoryIsTheCluster(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "inventory")
	owned(t, k, "inventory")
	hold(t, k, "inventory", "held")

	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	counted := &methods{counts: make(map[string]int)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { counted.next = next; return counted })
	inv, err := reader.Read(t.Context(), config, reader.Options{Now: time.Now(), Pods: true})
	if err != nil {
		t.Fatal(err)
	}
	if counted.counts[http.MethodGet] < 20 || len(counted.counts) != 1 {
		t.Errorf("requests by method: %v, want only GET", counted.counts)
	}
	if len(inv.Unread) > 0 {
		t.Errorf("unread: %+v", inv.Unread)
	}
	pods := selected(t, inv, "inventory", "po")
	if len(pods) != 3 || inv.Pods[pods[0].UID] == nil || inv.Pods[pods[0].UID].Grace != 30*time.Second {
		t.Errorf("pods: %+v", pods)
	}
	set := selected(t, inv, "inventory", "ReplicaSet.apps", "frontend")
	if got := slices.Collect(inv.Graph().Dependents(set[0].UID)); len(got) != 3 {
		t.Errorf("the set owns %v", got)
	}
	if held := selected(t, inv, "inventory", "configmaps.v1", "held"); len(held[0].Managers()) != 1 || !slices.Contains(held[0].Managers()[0].Finalizers, "example.com/hold") {
		t.Errorf("who has set the finalizer: %+v", held[0].Managers())
	}
	if inv.Namespaces[selected(t, inv, "", "ns", "inventory")[0].UID] == nil {
		t.Error("the namespace was not read whole")
	}
}

// hold makes a ConfigMap with a finalizer without a controller.
func hold(t *testing.T, k kubectl, namespace, name string) {
	t.Helper()
	k.run(t, "create", "-n", namespace, "configmap", name, "--from-literal=key=value") // an object without fields has no managers
	k.run(t, "patch", "-n", namespace, "configmap", name, "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
}

func selected(t *testing.T, inv *inventory.Inventory, namespace string, args ...string) []*inventory.Object {
	t.Helper()
	selectors, err := inv.ParseSelectors(args, namespace)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := inv.Select(selectors[0])
	if err != nil || len(objects) == 0 {
		t.Fatalf("%v: %v, %v", args, objects, err)
	}
	return objects
}

// TestGraphOfACluster prints the graph for an administrator, and for a user with few rights.
func TestGraphOfACluster(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "pictures")
	owned(t, k, "pictures")
	graph := func(kubeconfig string, args ...string) (string, string, error) {
		command := exec.Command(binary, append([]string{"graph", "--kubeconfig", kubeconfig, "-n", "pictures"}, args...)...)
		var stderr strings.Builder
		command.Stderr = &stderr
		out, err := command.Output()
		return string(out), stderr.String(), err
	}
	want := "ReplicaSet.apps pictures/frontend\n├── Pod pictures/frontend-0\n├── Pod pictures/frontend-1\n└── Pod pictures/frontend-2\n"
	if out, stderr, err := graph(p.kubeconfig, "rs/frontend", "--down"); err != nil || out != want || stderr != "" {
		t.Errorf("%v, %s, got\n%swant\n%s", err, stderr, out, want)
	}
	if out, stderr, err := graph(p.kubeconfig, "rs", "nobody"); err == nil || !strings.Contains(stderr, `replicasets.apps "nobody" not found in namespace pictures`) {
		t.Errorf("%v, %s, %s", err, out, stderr)
	}
	if out, stderr, err := graph(p.kubeconfig, "unheardof/a"); err == nil || !strings.Contains(stderr, `does not serve "unheardof"`) {
		t.Errorf("%v, %s, %s", err, out, stderr)
	}
	// A user who may view one namespace sees that namespace, and the output says so.
	k.run(t, "create", "serviceaccount", "-n", "pictures", "viewer")
	k.run(t, "create", "rolebinding", "-n", "pictures", "viewer", "--clusterrole=view", "--serviceaccount=pictures:viewer")
	viewer := filepath.Join(t.TempDir(), "viewer")
	writeTokenKubeconfig(t, p, viewer, strings.TrimSpace(k.run(t, "create", "token", "-n", "pictures", "viewer")))
	eventually.Agrees(t, func() string { // the authorizer observes the binding by a watch
		out, stderr, err := graph(viewer, "rs/frontend", "--address=none")
		if err != nil || out != want || !strings.Contains(stderr, "not read: secrets") && !strings.Contains(stderr, "more\n") {
			return out + stderr
		}
		return ""
	})
	// The collector knows that there is nothing else, and does not say so to callers that may not list everything.
	const leftOut = "not read: objects that you may not list are left out\n"
	if out, stderr, err := graph(viewer, "rs/frontend"); err != nil || out != want || stderr != leftOut {
		t.Errorf("%v, %s, got\n%swant\n%s", err, stderr, out, want)
	}
}

// writeTokenKubeconfig writes a kubeconfig for the bearer of a token.
func writeTokenKubeconfig(t *testing.T, p *plane, path, token string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData, user.ClientCertificate, user.ClientKey = nil, nil, "", ""
		user.Token = token
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}
