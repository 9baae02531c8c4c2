package e2e

import (
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// eventuallyBudget waits until the budget web has these numbers of expected, healthy, desired and
// allowed pods, for that reason.
func eventuallyBudget(t *testing.T, k kubectl, namespace, want string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		const status = `{.status.expectedPods} {.status.currentHealthy} {.status.desiredHealthy} {.status.disruptionsAllowed} {.status.conditions[*].reason}`
		if got := k.get(t, namespace, "poddisruptionbudget/web", status); got != want {
			return "expected, healthy, desired and allowed: " + got
		}
		return ""
	})
}

// TestDrainWaitsForTheBudget drains a node: a pod stays until its disruption budget allows the eviction.
func TestDrainWaitsForTheBudget(t *testing.T) {
	t.Parallel()
	k := ourKubectl(startPlane(t, "--ephemeral", "--secure-port=0", "--nodes=2"))
	namespace, pods := running(t, k)
	k.run(t, "create", "poddisruptionbudget", "-n", namespace, "web", "--selector=app=web", "--min-available=3")
	eventuallyBudget(t, k, namespace, "3 3 3 0 InsufficientPods")
	node := k.get(t, namespace, pods[0], "{.spec.nodeName}")
	out, errs, err := k.try(t, "", "drain", node, "--timeout=10s")
	if err == nil || !strings.Contains(errs, "Cannot evict pod as it would violate the pod's disruption budget.") {
		t.Errorf("drain: %v\n%s%s", err, out, errs)
	}
	k.eventuallyNames(t, namespace, "pods", pods...)

	k.run(t, "patch", "poddisruptionbudget", "-n", namespace, "web", "-p", `{"spec":{"minAvailable":2}}`)
	k.run(t, "drain", node, "--timeout=2m")
	if left := k.names(t, namespace, "pods", "--field-selector=spec.nodeName="+node); len(left) > 0 {
		t.Errorf("left on the node: %v", left)
	}
	eventuallyBudget(t, k, namespace, "3 3 2 1 SufficientPods")
}

// scaled is a custom resource whose instances run pods, in the number that /scale reports.
const scaled = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.scaled.example.com}
spec:
  group: scaled.example.com
  scope: Namespaced
  names: {plural: clusters, singular: cluster, kind: Cluster}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}}}
`

// TestBudgetOfCustomResource has a custom resource say how many pods there should be.
func TestBudgetOfCustomResource(t *testing.T) {
	t.Parallel()
	k := ourKubectl(startPlane(t, "--ephemeral", "--secure-port=0", "--nodes=1"))
	namespace := newNamespace(t, k)
	k.run(t, "create", "poddisruptionbudget", "-n", namespace, "web", "--selector=app=web", "--max-unavailable=1")
	k.apply(t, "default", scaled)
	k.run(t, "wait", "--for=condition=Established", "crd/clusters.scaled.example.com", "--timeout=2m")
	eventually.Agrees(t, func() string {
		_, errs, _ := k.try(t, "", "get", "-n", namespace, "clusters.scaled.example.com")
		return strings.TrimPrefix(strings.TrimSpace(errs), "No resources found in "+namespace+" namespace.")
	})
	k.apply(t, namespace, "apiVersion: scaled.example.com/v1\nkind: Cluster\nmetadata: {name: db}\nspec: {replicas: 3}\n")
	uid := uidOf(t, k, namespace, "cluster/db")
	for _, name := range []string{"a", "b", "c"} {
		owner := ownerOf("scaled.example.com/v1", "Cluster", "db", uid, false) + "    controller: true\n"
		k.apply(t, namespace, strings.Replace(pod(name, owner), "metadata:\n", "metadata:\n  labels: {app: web}\n", 1))
	}
	eventuallyBudget(t, k, namespace, "3 3 2 1 SufficientPods")
	k.run(t, "delete", "-n", namespace, "pod", "a", "--force", "--grace-period=0")
	eventuallyBudget(t, k, namespace, "3 2 2 0 InsufficientPods")
}
