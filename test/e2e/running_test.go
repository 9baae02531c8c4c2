package e2e

import (
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const twoContainers = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [
  {name: main, image: nginx, resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {memory: 16Mi}}}, {name: side, image: busybox}]}}`

// TestRunningPodsChange changes pods that run, on a simulated node.
func TestRunningPodsChange(t *testing.T) {
	t.Parallel()
	k := ourKubectl(startPlane(t, "--ephemeral", "--secure-port=0"))
	for name, test := range map[string]func(*testing.T, kubectl, string){"debug": testDebug, "resize": testResize} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t, k)
			k.apply(t, ns, twoContainers)
			k.run(t, "wait", "-n", ns, "pod/web", "--for=condition=Ready", "--timeout=2m")
			test(t, k, ns)
		})
	}
}

// testDebug adds a container to a pod that runs, as kubectl debug does. It can be seen and read, and
// has no part in the state of the pod.
func testDebug(t *testing.T, k kubectl, ns string) {
	k.run(t, "debug", "-n", ns, "web", "--image=busybox", "--container=look", "--target=main")
	eventually.Agrees(t, func() string {
		if running := k.get(t, ns, "pod/web", "{.status.ephemeralContainerStatuses[0].state.running}"); running == "" {
			return "the container does not run"
		}
		return ""
	})
	if logs := k.run(t, "logs", "-n", ns, "web", "-c", "look"); !strings.Contains(logs, "container look started") {
		t.Errorf("its logs: %s", logs)
	}
	if ready := k.get(t, ns, "pod/web", `{.status.conditions[?(@.type=="Ready")].status}`); ready != "True" {
		t.Errorf("the pod is ready: %s", ready)
	}
	k.run(t, "label", "-n", ns, "pod", "web", "seen=yes")
	k.run(t, "delete", "-n", ns, "pod", "web")
}

// testResize changes the resources of a running container; its node reports when the change is done.
func testResize(t *testing.T, k kubectl, ns string) {
	k.run(t, "patch", "-n", ns, "pod", "web", "--subresource=resize", "-p",
		`{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "20m"}, "limits": {"memory": "32Mi"}}}]}}`)
	const main = `{.status.containerStatuses[?(@.name=="main")]`
	eventually.Agrees(t, func() string {
		got := strings.Join([]string{
			k.get(t, ns, "pod/web", main+".resources.requests.cpu}"), k.get(t, ns, "pod/web", main+".resources.limits.memory}"),
			k.get(t, ns, "pod/web", main+".allocatedResources.cpu}"), k.get(t, ns, "pod/web", main+".restartCount}"),
		}, " ")
		if want := "20m 32Mi 20m 0"; got != want {
			return got + ", want " + want
		}
		return ""
	})
	if _, stderr, err := k.try(t, "", "patch", "-n", ns, "pod", "web", "-p", `{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "30m"}}}]}}`); err == nil || !strings.Contains(stderr, "may not change") {
		t.Errorf("without the subresource: %s", stderr)
	}
}
