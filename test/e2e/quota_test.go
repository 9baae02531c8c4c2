package e2e

import (
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestDeploymentLargerThanItsQuota creates a deployment that is larger than the quota of its namespace: it gets as many pods
// as the quota allows, the others when the quota is raised, and the quota is free when all are gone.
func TestDeploymentLargerThanItsQuota(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	namespace := newNamespace(t, k)
	used := func(want string) {
		t.Helper()
		eventually.Agrees(t, func() string {
			got := k.get(t, namespace, "quota/small", `{.status.used.pods} {.status.used.count/deployments\.apps} {.status.used.requests\.cpu}`)
			if got != want {
				return "used: " + got + ", want " + want
			}
			return ""
		})
	}
	k.run(t, "create", "quota", "-n", namespace, "small", "--hard=pods=2,count/deployments.apps=1,requests.cpu=1")
	used("0 0 0")
	k.apply(t, namespace, `{apiVersion: v1, kind: LimitRange, metadata: {name: limits}, spec: {limits: [{type: Container, defaultRequest: {cpu: 100m}}]}}`)
	k.run(t, "create", "deployment", "-n", namespace, "web", "--image=web", "--replicas=3")
	used("2 1 200m")
	_, refusal, err := k.try(t, "", "create", "deployment", "-n", namespace, "other", "--image=web")
	if want := "exceeded quota: small, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1"; err == nil || !strings.Contains(refusal, want) {
		t.Errorf("a second deployment: %v, %s", err, refusal)
	}
	eventually.Agrees(t, func() string {
		const want = "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
		if got := k.get(t, namespace, "deployment/web", `{.status.conditions[?(@.type=="ReplicaFailure")].message}`); !strings.Contains(got, want) {
			return "the deployment fails with " + got
		}
		return ""
	})
	k.run(t, "patch", "quota", "-n", namespace, "small", "-p", `{"spec":{"hard":{"pods":"3"}}}`)
	settled(t, k, namespace, "web", 3)
	used("3 1 300m")
	k.run(t, "delete", "deployment", "-n", namespace, "web")
	used("0 0 0")
}
