package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// statefulWeb is a set of three with a claim for each pod.
const statefulWeb = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

const daemonAgent = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "agent:1"}]}
`

// TestStatefulSetRollout goes forth and back by kubectl's rollout, never with fewer than
// two of three pods. Out of a template that never becomes ready, it waits for a user to delete
// the pod.
func TestStatefulSetRollout(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	nodes := startKubelet(t, k.plane, "node-1")
	namespace := newNamespace(t, k)
	rollout := func(args ...string) string {
		t.Helper()
		return k.run(t, append([]string{"rollout", args[0], "-n", namespace, "statefulset/web"}, args[1:]...)...)
	}
	k.apply(t, namespace, statefulWeb)
	if out := rollout("status", "--timeout=2m"); !strings.Contains(out, "roll out complete: 3 new pods") {
		t.Errorf("rollout status: %s", out)
	}
	k.eventuallyNames(t, namespace, "pods", "pod/web-0", "pod/web-1", "pod/web-2")
	k.eventuallyNames(t, namespace, "persistentvolumeclaims", "persistentvolumeclaim/data-web-0", "persistentvolumeclaim/data-web-1", "persistentvolumeclaim/data-web-2")
	got := k.get(t, namespace, "pod/web-1", `{.spec.hostname} {.spec.subdomain} {.spec.volumes[0].persistentVolumeClaim.claimName} {.metadata.labels.apps\.kubernetes\.io/pod-index}`)
	if want := "web-1 web data-web-1 1"; got != want {
		t.Errorf("the pod's identity is %q, want %q", got, want)
	}

	nodes.watch(t, namespace, 3)
	k.run(t, "set", "image", "-n", namespace, "statefulset/web", "web=web:2")
	rollout("status", "--timeout=2m")
	images := func(want string) {
		t.Helper()
		eventually.Agrees(t, func() string {
			return differs(k.get(t, namespace, "pods", "{.items[*].spec.containers[0].image}"), want)
		})
	}
	images("web:2 web:2 web:2")
	if history := rollout("history"); !strings.Contains(history, "\n1 ") || !strings.Contains(history, "\n2 ") {
		t.Errorf("the history is\n%s", history)
	}
	rollout("undo")
	images("web:1 web:1 web:1")
	rollout("status", "--timeout=2m")
	if history := rollout("history"); strings.Contains(history, "\n1 ") || !strings.Contains(history, "\n3 ") {
		t.Errorf("after an undo the history is\n%s", history)
	}
	if detail := rollout("history", "--revision=2"); !strings.Contains(detail, "web:2") {
		t.Errorf("revision 2 is\n%s", detail)
	}
	k.run(t, "set", "image", "-n", namespace, "statefulset/web", "web=sick")
	images("web:1 web:1 sick")
	sick := uidOf(t, k, namespace, "pod/web-2")
	rollout("undo")
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, "statefulset/web", "{.status.observedGeneration}"), k.get(t, namespace, "statefulset/web", "{.metadata.generation}"))
	})
	if uid := uidOf(t, k, namespace, "pod/web-2"); uid != sick {
		t.Error("a pod that is not ready was replaced")
	}
	k.run(t, "delete", "-n", namespace, "pod/web-2")
	images("web:1 web:1 web:1")
	rollout("restart")
	eventually.Agrees(t, func() string {
		restarted := k.get(t, namespace, "pods", `{.items[*].metadata.annotations.kubectl\.kubernetes\.io/restartedAt}`)
		if n := len(strings.Fields(restarted)); n != 3 {
			return fmt.Sprintf("%d of the pods were restarted", n)
		}
		return ""
	})
	rollout("status", "--timeout=2m")
	if least := nodes.least(namespace); least != 2 {
		t.Errorf("at least %d pods were ready at any time, want 2", least)
	}
}

// TestStatefulSetOrphan deletes a set and leaves its pods: one of the same name and
// selector adopts them as they are, revisions and all.
func TestStatefulSetOrphan(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	startKubelet(t, k.plane, "node-1")
	namespace := newNamespace(t, k)
	k.apply(t, namespace, statefulWeb)
	k.run(t, "rollout", "status", "-n", namespace, "statefulset/web", "--timeout=2m")
	uids := func() string { return k.get(t, namespace, "pods", "{.items[*].metadata.uid}") }
	before := uids()
	revisions := k.names(t, namespace, "controllerrevisions")

	k.run(t, "delete", "-n", namespace, "statefulset/web", "--cascade=orphan")
	k.eventuallyNames(t, namespace, "statefulsets")
	if owners := k.get(t, namespace, "pods,controllerrevisions", "{.items[*].metadata.ownerReferences}"); owners != "" {
		t.Errorf("what is left has owners: %s", owners)
	}
	hashes := k.get(t, namespace, "pods", `{.items[*].metadata.labels.controller-revision-hash}`)
	if want := strings.TrimPrefix(revisions[0], "controllerrevision.apps/"); hashes != strings.Join([]string{want, want, want}, " ") {
		t.Errorf("the labels of the pods are %s, the revision is %v", hashes, revisions)
	}

	k.apply(t, namespace, statefulWeb)
	uid := uidOf(t, k, namespace, "statefulset/web")
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, "pods,controllerrevisions", "{.items[*].metadata.ownerReferences[*].uid}"), strings.Join([]string{uid, uid, uid, uid}, " "))
	})
	k.run(t, "rollout", "status", "-n", namespace, "statefulset/web", "--timeout=2m")
	if after := uids(); after != before {
		t.Errorf("the pods are others than before: %s, %s", after, before)
	}
	k.eventuallyNames(t, namespace, "controllerrevisions", revisions...)
}

// TestStatefulSetWithAnotherClaimAdoptsPods creates a set again with one more claim template: its pods lack
// the volume, which an Event says, until they are deleted.
func TestStatefulSetWithAnotherClaimAdoptsPods(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	startKubelet(t, k.plane, "node-1")
	namespace := newNamespace(t, k)
	one := strings.Replace(statefulWeb, "replicas: 3", "replicas: 1", 1)
	k.apply(t, namespace, one)
	k.run(t, "rollout", "status", "-n", namespace, "statefulset/web", "--timeout=2m")
	k.run(t, "delete", "-n", namespace, "statefulset/web", "--cascade=orphan")
	k.eventuallyNames(t, namespace, "statefulsets")

	k.apply(t, namespace, one+`
  - metadata: {name: logs}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	k.eventuallyNames(t, namespace, "persistentvolumeclaims", "persistentvolumeclaim/data-web-0", "persistentvolumeclaim/logs-web-0")
	eventually.Agrees(t, func() string {
		messages := k.get(t, namespace, "events", `{.items[?(@.reason=="FailedUpdate")].message}`)
		if !strings.Contains(messages, "pod web-0 has no volume for logs-web-0") {
			return "events: " + messages
		}
		return ""
	})
	k.run(t, "delete", "-n", namespace, "pod/web-0")
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, "pods", "{.items[*].spec.volumes[*].persistentVolumeClaim.claimName}"), "data-web-0 logs-web-0")
	})
	k.run(t, "rollout", "status", "-n", namespace, "statefulset/web", "--timeout=2m")
}

// TestStatefulSetClaims scales down under each policy, and deletes the set.
func TestStatefulSetClaims(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	startKubelet(t, k.plane, "node-1")
	const first, second = "persistentvolumeclaim/data-web-0", "persistentvolumeclaim/data-web-1"
	for _, c := range []struct {
		policy         string
		scaled, remain []string
	}{
		{"{whenDeleted: Retain, whenScaled: Retain}", []string{first, second}, []string{first, second}},
		{"{whenDeleted: Delete, whenScaled: Retain}", []string{first, second}, nil},
		{"{whenDeleted: Retain, whenScaled: Delete}", []string{first}, []string{first}},
		{"{whenDeleted: Delete, whenScaled: Delete}", []string{first}, nil},
	} {
		t.Run(c.policy, func(t *testing.T) {
			namespace := newNamespace(t, k)
			k.apply(t, namespace, strings.Replace(statefulWeb, "replicas: 3", "replicas: 2\n  persistentVolumeClaimRetentionPolicy: "+c.policy, 1))
			k.run(t, "rollout", "status", "-n", namespace, "statefulset/web", "--timeout=2m")
			k.run(t, "scale", "-n", namespace, "statefulset/web", "--replicas=1")
			k.eventuallyNames(t, namespace, "pods", "pod/web-0")
			k.eventuallyNames(t, namespace, "persistentvolumeclaims", c.scaled...)
			k.run(t, "delete", "-n", namespace, "statefulset/web")
			k.eventuallyNames(t, namespace, "pods")
			if c.remain != nil {
				k.eventuallyNames(t, namespace, "controllerrevisions") // the collector was there
			}
			k.eventuallyNames(t, namespace, "persistentvolumeclaims", c.remain...)
		})
	}
}

// TestDaemonSetRollout goes forth and back by kubectl's rollout, with one node at a time
// without a ready pod, and then with none.
func TestDaemonSetRollout(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	nodes := startKubelet(t, k.plane, "node-1", "node-2", "node-3")
	namespace := newNamespace(t, k)
	rollout := func(args ...string) string {
		t.Helper()
		return k.run(t, append([]string{"rollout", args[0], "-n", namespace, "daemonset/agent"}, args[1:]...)...)
	}
	k.apply(t, namespace, daemonAgent)
	nodes.watch(t, namespace, 3)
	if out := rollout("status", "--timeout=2m"); !strings.Contains(out, "successfully rolled out") {
		t.Errorf("rollout status: %s", out)
	}
	on := strings.Fields(k.get(t, namespace, "pods", "{.items[*].spec.nodeName}"))
	if slices.Sort(on); !slices.Equal(on, []string{"node-1", "node-2", "node-3"}) {
		t.Errorf("the pods are on %v", on)
	}
	images := func(want string) {
		t.Helper()
		eventually.Agrees(t, func() string {
			return differs(k.get(t, namespace, "pods", "{.items[*].spec.containers[0].image}"), want)
		})
	}
	nodes.watch(t, namespace, 3)
	k.run(t, "set", "image", "-n", namespace, "daemonset/agent", "agent=agent:2")
	rollout("status", "--timeout=2m")
	images("agent:2 agent:2 agent:2")
	if least := nodes.least(namespace); least != 2 {
		t.Errorf("at least %d pods were ready at any time, want 2", least)
	}

	nodes.watch(t, namespace, 3)
	k.run(t, "patch", "-n", namespace, "daemonset/agent", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}}}`)
	rollout("undo")
	images("agent:1 agent:1 agent:1")
	rollout("status", "--timeout=2m")
	if history := rollout("history"); !strings.Contains(history, "\n2 ") || !strings.Contains(history, "\n3 ") {
		t.Errorf("the history is\n%s", history)
	}
	k.run(t, "set", "image", "-n", namespace, "daemonset/agent", "agent=sick")
	eventually.Agrees(t, func() string {
		if list := k.get(t, namespace, "pods", "{.items[*].spec.containers[0].image}"); !strings.Contains(list, "sick") {
			return list
		}
		return ""
	})
	rollout("undo")
	rollout("restart")
	rollout("status", "--timeout=2m")
	images("agent:1 agent:1 agent:1")
	if least := nodes.least(namespace); least != 3 {
		t.Errorf("with a surge at least %d pods were ready at any time, want 3", least)
	}

	k.run(t, "taint", "node", "node-2", "mine=yes:NoExecute")
	k.eventuallyNames(t, "default", "nodes", "node/node-1", "node/node-2", "node/node-3")
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, "daemonset/agent", "{.status.desiredNumberScheduled} {.status.currentNumberScheduled} {.status.numberMisscheduled}"), "2 2 0")
	})
	k.run(t, "label", "node", "node-3", "kubernetes.io/hostname-", "disk=ssd")
	k.run(t, "patch", "-n", namespace, "daemonset/agent", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}}`)
	eventually.Agrees(t, func() string { return differs(k.get(t, namespace, "pods", "{.items[*].spec.nodeName}"), "node-3") })
}

// TestDaemonSetOrphan deletes a set and leaves its pods and revisions; one of the same
// name and template adopts both.
func TestDaemonSetOrphan(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	nodes := startKubelet(t, k.plane, "node-1", "node-2")
	namespace := newNamespace(t, k)
	k.apply(t, namespace, daemonAgent)
	nodes.watch(t, namespace, 2)
	pods, revisions := k.names(t, namespace, "pods"), k.names(t, namespace, "controllerrevisions")
	if len(pods) != 2 || len(revisions) != 1 {
		t.Fatalf("%v %v", pods, revisions)
	}
	k.run(t, "delete", "-n", namespace, "daemonset/agent", "--cascade=orphan")
	k.eventuallyNames(t, namespace, "daemonsets")
	k.eventuallyNames(t, namespace, "pods,controllerrevisions", append(slices.Clone(pods), revisions...)...)
	k.apply(t, namespace, daemonAgent)
	uid := uidOf(t, k, namespace, "daemonset/agent")
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, "pods,controllerrevisions", "{.items[*].metadata.ownerReferences[*].uid}"), strings.Join([]string{uid, uid, uid}, " "))
	})
	k.run(t, "rollout", "status", "-n", namespace, "daemonset/agent", "--timeout=2m")
	k.eventuallyNames(t, namespace, "pods", pods...)
	k.run(t, "delete", "-n", namespace, "daemonset/agent", "--cascade=foreground")
	k.eventuallyNames(t, namespace, "daemonsets,pods,controllerrevisions")
}
