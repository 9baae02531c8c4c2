package e2e

import (
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const ghost = `
apiVersion: v1
kind: Node
metadata: {name: ghost}
---
apiVersion: v1
kind: Namespace
metadata: {name: ghosts}
`

const podOfGhost = `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  nodeName: ghost
  containers: [{name: c, image: example.com/none}]
`

// The preview of the deletion of a node has its pods, which the pod garbage collector takes. Explain names it for a pod
// whose node is gone, and so it happens.
func TestPodsOfADeletedNodeGo(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", noNodes)
	k := ourKubectl(p)
	const namespace = "ghosts"
	k.apply(t, "default", ghost)
	eventually.Agrees(t, func() string { // once the namespace has its service account
		_, errs, _ := k.try(t, podOfGhost, "apply", "-n", namespace, "-f", "-")
		return errs
	})
	var digests []string
	for _, address := range []string{"", "none"} {
		out, errs, code := coppice(t, "preview", "delete", "--kubeconfig", p.kubeconfig, "node/ghost", "--address", address)
		if code != 0 || !strings.Contains(out, "Pod ghosts/p, by the pod garbage collector\n") || !strings.Contains(out, "Deleted: 1 Pod\n") {
			t.Errorf("--address %q: exit code %d\n%s%s", address, code, out, errs)
		}
		digests = append(digests, out[strings.Index(out, "Digest: "):])
	}
	if digests[0] != digests[1] {
		t.Error("a collector predicts something else than the cluster")
	}
	k.run(t, "delete", "node", "ghost")
	const says = "slow: its node ghost is gone: the pod garbage collector"
	for _, address := range []string{"", "none"} {
		out, errs, _ := coppice(t, "explain", "--kubeconfig", p.kubeconfig, "-n", namespace, "pod/p", "--address", address)
		if !strings.Contains(out, says) {
			t.Errorf("--address %q: no %q in\n%s%s", address, says, out, errs)
		}
	}
	eventually.Agrees(t, func() string { return k.get(t, namespace, "pods", "{.items[*].metadata.name}") })
}
