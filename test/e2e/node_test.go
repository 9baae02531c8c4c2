package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/controlplane"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// nodeAgent is a running coppice node.
type nodeAgent struct {
	kubeconfig string
	args       []string
	process    *controlplane.Process
	stopped    bool // by SIGSTOP
}

// quickNodes make a silent node not ready soon. On a loaded machine an agent's heartbeats may be
// delayed for seconds, so a test must tolerate a node that is not ready for a moment: pods
// tolerate that for 300 s.
const quickNodes = "--node-monitor-grace-period=4s"

// startWithNode starts a control plane without nodes, and one node in a process of its own.
func startWithNode(t *testing.T, name string) (kubectl, *nodeAgent) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := startPlane(t, "--ephemeral", "--secure-port=0", noNodes, quickNodes, "--write-node-kubeconfig", name+"="+file)
	n := &nodeAgent{kubeconfig: file, args: []string{"node", "--kubeconfig", file, "--lease-duration=2s"}}
	n.start(t)
	t.Cleanup(func() { n.end(t, syscall.SIGINT) })
	return ourKubectl(p), n
}

// start runs the agent and waits until the node is registered.
func (n *nodeAgent) start(t *testing.T) {
	t.Helper()
	var err error
	if n.process, err = controlplane.Start(binary, n.args...); err != nil {
		t.Fatal(err)
	}
}

// end ends the agent by a signal, if it runs.
func (n *nodeAgent) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if n.stopped {
		n.resume(t)
	}
	end := n.process.Stop
	if signal == syscall.SIGKILL {
		end = n.process.Kill
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// freeze stops the agent, as on a machine that hangs.
func (n *nodeAgent) freeze(t *testing.T) {
	t.Helper()
	if err := n.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.stopped = true
}

func (n *nodeAgent) resume(t *testing.T) {
	t.Helper()
	if err := n.process.Signal(syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	n.stopped = false
}

// nodeIs waits until the node has the given readiness.
func nodeIs(t *testing.T, k kubectl, name, ready string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		if got := k.get(t, "", "node/"+name, `{.status.conditions[?(@.type=="Ready")].status}`); got != ready {
			return "node " + name + " is ready: " + got
		}
		return ""
	})
}

// running creates a deployment of three pods, and waits until they are ready. It returns its
// namespace and the pods.
func running(t *testing.T, k kubectl) (namespace string, pods []string) {
	t.Helper()
	namespace = newNamespace(t, k)
	k.run(t, "create", "deployment", "-n", namespace, "web", "--image=web", "--replicas=3")
	eventually.Agrees(t, func() string {
		if got := k.get(t, namespace, "deployment/web", "{.status.readyReplicas}"); got != "3" {
			return got + " replicas are ready"
		}
		return ""
	})
	return namespace, k.names(t, namespace, "pods")
}

// TestStoppedNode: while the agent of a node is stopped, nothing can confirm that its pods have
// ended, and a foreground deletion above them waits. There are three ways to let it end.
func TestStoppedNode(t *testing.T) {
	t.Parallel()
	k, agent := startWithNode(t, "worker")
	for _, way := range []struct {
		name    string
		unblock func(t *testing.T, namespace, set string, pods []string)
		left    bool // the pods stay until their node reports that they have ended
	}{
		{"the pods deleted by force", func(t *testing.T, namespace, _ string, pods []string) {
			k.run(t, append([]string{"delete", "-n", namespace, "--force", "--grace-period=0", "--wait=false"}, pods...)...)
		}, false},
		{"the owner reference removed", func(t *testing.T, namespace, set string, _ []string) {
			k.run(t, "patch", "-n", namespace, set, "--type=json", "-p", `[{"op":"remove","path":"/metadata/ownerReferences"}]`)
		}, true},
		{"blockOwnerDeletion set to false", func(t *testing.T, namespace, set string, _ []string) {
			k.run(t, "patch", "-n", namespace, set, "--type=json", "-p", `[{"op":"replace","path":"/metadata/ownerReferences/0/blockOwnerDeletion","value":false}]`)
		}, true},
	} {
		t.Run(way.name, func(t *testing.T) {
			nodeIs(t, k, "worker", "True")
			namespace, pods := running(t, k)
			set := k.names(t, namespace, "replicasets")[0]
			agent.freeze(t)
			nodeIs(t, k, "worker", "Unknown")

			k.run(t, "delete", "-n", namespace, "deployment/web", "--cascade=foreground", "--wait=false")
			eventually.Agrees(t, func() string {
				marked := k.get(t, namespace, "pods", "{.items[*].metadata.deletionTimestamp}")
				if len(strings.Fields(marked)) != 3 {
					return "pods being deleted: " + marked
				}
				return ""
			})
			// The deletion has reached the pods and stops there: the collector has nothing left to
			// do, and the pods hold the other objects.
			for _, object := range []string{"deployment/web", set} {
				if got := k.get(t, namespace, object, "{.metadata.finalizers}"); got != `["foregroundDeletion"]` {
					t.Errorf("%s has the finalizers %s", object, got)
				}
			}
			way.unblock(t, namespace, set, pods)
			k.eventuallyNames(t, namespace, "deployments")
			if !way.left {
				k.eventuallyNames(t, namespace, "replicasets,pods")
			} else if left := k.names(t, namespace, "pods"); fmt.Sprint(left) != fmt.Sprint(pods) {
				t.Errorf("pods %v, want %v", left, pods)
			}
			agent.resume(t)
			nodeIs(t, k, "worker", "True")
			k.eventuallyNames(t, namespace, "replicasets,pods")
		})
	}
}

// TestNodeRestarts: an agent that exits, regularly or not, ends no pod, and the next one takes over
// the pods: none is restarted, and pods that were deleted meanwhile end.
func TestNodeRestarts(t *testing.T) {
	t.Parallel()
	k, agent := startWithNode(t, "worker")
	namespace, pods := running(t, k)
	const state = "{range .items[*]}{.metadata.uid} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state.running.startedAt}\n{end}"
	before := k.get(t, namespace, "pods", state)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		agent.end(t, signal)
		nodeIs(t, k, "worker", "Unknown")
		agent.start(t)
		nodeIs(t, k, "worker", "True")
		// Once it runs a new pod, it has looked at the others.
		k.run(t, "run", "-n", namespace, "later", "--image=later", "--restart=Never")
		k.run(t, "wait", "-n", namespace, "pod/later", "--for=condition=Ready", "--timeout=2m")
		k.run(t, "delete", "-n", namespace, "pod/later")
		if after := k.get(t, namespace, "pods", state); after != before {
			t.Errorf("after %s the pods are\n%s\nand were\n%s", signal, after, before)
		}
	}
	agent.end(t, syscall.SIGKILL)
	k.run(t, "delete", "-n", namespace, pods[0], "--wait=false")
	agent.start(t)
	eventually.Agrees(t, func() string {
		if strings.Contains(strings.Join(k.names(t, namespace, "pods"), " "), pods[0]) {
			return pods[0] + " is there"
		}
		return ""
	})
}

// The file with a node's credential is readable by its owner only, and the credential is valid
// for the node's own pods only.
func TestNodeCredential(t *testing.T) {
	t.Parallel()
	k, agent := startWithNode(t, "worker")
	if info, err := os.Stat(agent.kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	namespace, pods := running(t, k)
	k.run(t, "run", "-n", namespace, "elsewhere", "--image=i", `--overrides={"spec":{"nodeName":"other"}}`)
	node := kubectl{"as a node", append(slices.Clone(k.command), "--kubeconfig", agent.kubeconfig), k.plane}
	if got := node.names(t, namespace, "pods", "--field-selector=spec.nodeName=worker"); len(got) != 3 {
		t.Errorf("its pods: %v", got)
	}
	node.run(t, "get", "-n", namespace, pods[0])
	for _, refused := range [][]string{
		{"get", "pods", "-A"},
		{"get", "-n", namespace, "pod/elsewhere"},
		{"delete", "-n", namespace, "pod/elsewhere", "--wait=false"},
		{"delete", "node/worker", "--wait=false"},
		{"taint", "nodes", "worker", "a=b:NoExecute"},
		{"label", "node/worker", "node-restriction.kubernetes.io/a=b"},
		{"label", "-n", namespace, pods[0], "a=b"},
		{"get", "secrets", "-A"},
	} {
		if out, errs, err := node.try(t, "", refused...); err == nil || !strings.Contains(errs, "orbidden") {
			t.Errorf("kubectl %s: %s%s%v", strings.Join(refused, " "), out, errs, err)
		}
	}
}

// TestNodeLogs: kubectl logs works for pods on a node in a process of its own too, and reports the
// address of the agent if there is none. The agent answers only the API server.
func TestNodeLogs(t *testing.T) {
	t.Parallel()
	k, agent := startWithNode(t, "worker")
	namespace := newNamespace(t, k)
	k.run(t, "run", "-n", namespace, "web", "--image=web",
		"--annotations=simulated.coppice.dev/exit-after=0s", "--annotations=simulated.coppice.dev/exit-after-times=1")
	eventually.Agrees(t, func() string {
		if got := k.get(t, namespace, "pod/web", "{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}"); got != "1 true" {
			return "restarts and readiness: " + got
		}
		return ""
	})
	const started = "simulated: container web started, attempt 1"
	for _, test := range []struct{ args, want string }{
		{"", started},
		{"--previous", "simulated: container web started, attempt 0\nsimulated: exit code 0"},
		{"--previous --tail=1", "simulated: exit code 0"},
		{"--limit-bytes=10", started[:10]},
		{"--insecure-skip-tls-verify-backend", started},
	} {
		if got := k.run(t, append([]string{"logs", "-n", namespace, "web"}, strings.Fields(test.args)...)...); got != test.want {
			t.Errorf("kubectl logs %s: %q, want %q", test.args, got, test.want)
		}
	}

	address := k.get(t, "", "node/worker", `{.status.addresses[?(@.type=="InternalIP")].address}:{.status.daemonEndpoints.kubeletEndpoint.Port}`)
	if !strings.HasPrefix(address, "127.0.0.1:") {
		t.Errorf("it serves at %s", address)
	}
	for _, kubeconfig := range []string{k.plane.kubeconfig, agent.kubeconfig} {
		if status, err := ask(t, kubeconfig, "https://"+address+"/containerLogs/"+namespace+"/web/web"); err == nil {
			t.Errorf("with %s the agent answers %s", kubeconfig, status)
		}
	}
	k.run(t, "run", "-n", namespace, "followed", "--image=web")
	k.run(t, "wait", "-n", namespace, "pod/followed", "--for=condition=Ready", "--timeout=2m")
	logs := k.begin(t, "logs", "-n", namespace, "followed", "-f")
	if line, err := logs.ReadString('\n'); line != "simulated: container followed started, attempt 0\n" {
		t.Errorf("kubectl logs -f begins with %q: %v", line, err)
	}
	k.run(t, "delete", "-n", namespace, "pod/followed", "--wait=false")
	if rest, err := io.ReadAll(logs); err != nil { // it ends with the pod
		t.Errorf("kubectl logs -f goes on with %q: %v", rest, err)
	}

	agent.end(t, syscall.SIGKILL)
	if _, errs, err := k.try(t, "", "logs", "-n", namespace, "web"); err == nil || !strings.Contains(errs, "the agent of node worker, which does not answer at "+address) {
		t.Errorf("without an agent: %v %s", err, errs)
	}
	agent.start(t)
	eventually.Agrees(t, func() string { // the agent is ready before it has looked at its pods
		if got, errs, err := k.try(t, "", "logs", "-n", namespace, "web"); err != nil || strings.TrimSpace(got) != started {
			return fmt.Sprintf("of the agent that took over: %q %s %v", got, errs, err)
		}
		return ""
	})
}

// ask makes a request with the certificate of a kubeconfig, and trusts any server.
func ask(t *testing.T, kubeconfig, url string) (status string, err error) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}}}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	return response.Status, nil
}
