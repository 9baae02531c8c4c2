package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// shipped returns a control plane as coppice up runs it, but without nodes: pods stay pending,
// and are removed at once when they are deleted.
func shipped(t *testing.T) kubectl {
	t.Helper()
	return ourKubectl(startPlane(t, "--ephemeral", "--secure-port=0", noNodes))
}

// settled waits until a deployment has the desired number of pods of its newest template.
func settled(t *testing.T, k kubectl, namespace, name string, replicas int) {
	t.Helper()
	eventually.Agrees(t, func() string {
		got := k.get(t, namespace, "deployment/"+name, "{.status.replicas} {.status.observedGeneration} {.metadata.generation}")
		var has, seen, generation int
		if _, err := fmt.Sscan(got, &has, &seen, &generation); err != nil || has != replicas || seen != generation {
			return "replicas, observed and current generation: " + got
		}
		return ""
	})
}

// TestDeploymentDeleted deletes a deployment under each policy.
func TestDeploymentDeleted(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	for _, policy := range []string{"background", "foreground", "orphan"} {
		t.Run(policy, func(t *testing.T) {
			namespace := newNamespace(t, k)
			k.run(t, "create", "deployment", "-n", namespace, "web", "--image=web", "--replicas=3")
			settled(t, k, namespace, "web", 3)
			sets, pods := k.names(t, namespace, "replicasets"), k.names(t, namespace, "pods")
			if len(sets) != 1 || len(pods) != 3 {
				t.Fatalf("%v %v", sets, pods)
			}
			owner := k.get(t, namespace, "pods", "{.items[0].metadata.ownerReferences[0]}")
			for _, want := range []string{`"kind":"ReplicaSet"`, `"controller":true`, `"blockOwnerDeletion":true`} {
				if !strings.Contains(owner, want) {
					t.Errorf("a pod's owner is %s", owner)
				}
			}
			k.run(t, "delete", "deployment", "-n", namespace, "web", "--cascade="+policy)
			k.eventuallyNames(t, namespace, "deployments")
			if policy != "orphan" {
				k.eventuallyNames(t, namespace, "replicasets,pods")
				return
			}
			if left := k.get(t, namespace, "replicasets", "{.items[*].metadata.ownerReferences}"); left != "" {
				t.Errorf("the orphaned set has owners: %s", left)
			}
			// Recreating the same deployment adopts the orphans of the first.
			k.run(t, "create", "deployment", "-n", namespace, "web", "--image=web", "--replicas=3")
			settled(t, k, namespace, "web", 3)
			k.eventuallyNames(t, namespace, "replicasets", sets...)
			k.eventuallyNames(t, namespace, "pods", pods...)
			uid := uidOf(t, k, namespace, "deployment/web")
			if got := k.get(t, namespace, "replicasets", "{.items[0].metadata.ownerReferences[0].uid}"); got != uid {
				t.Errorf("the set's owner is %s, want %s", got, uid)
			}
		})
	}
}

// TestRolloutAndRollback rolls out a change and rolls it back.
func TestRolloutAndRollback(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	namespace := newNamespace(t, k)
	k.run(t, "create", "deployment", "-n", namespace, "web", "--image=web:1", "--replicas=1")
	// These pods never become ready, so the old ones may be removed.
	k.run(t, "patch", "deployment", "-n", namespace, "web", "-p", `{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":1}}}}`)
	settled(t, k, namespace, "web", 1)
	first := k.names(t, namespace, "replicasets")
	k.run(t, "set", "image", "-n", namespace, "deployment/web", "web=web:2")
	eventually.Agrees(t, func() string {
		if sets := k.names(t, namespace, "replicasets"); len(sets) != 2 {
			return fmt.Sprint(sets)
		}
		return ""
	})
	settled(t, k, namespace, "web", 1)
	history := k.run(t, "rollout", "history", "-n", namespace, "deployment/web")
	if !strings.Contains(history, "\n1 ") || !strings.Contains(history, "\n2 ") {
		t.Errorf("the history is\n%s", history)
	}
	k.run(t, "rollout", "undo", "-n", namespace, "deployment/web")
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, "deployment/web", `{.metadata.annotations.deployment\.kubernetes\.io/revision}`), "3")
	})
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, first[0], "{.spec.replicas}"), "1")
	})
	k.run(t, "rollout", "pause", "-n", namespace, "deployment/web")
	k.run(t, "set", "image", "-n", namespace, "deployment/web", "web=web:3")
	k.run(t, "scale", "-n", namespace, "deployment/web", "--replicas=4")
	settled(t, k, namespace, "web", 4)
	if sets := k.names(t, namespace, "replicasets"); len(sets) != 2 {
		t.Errorf("a paused deployment is rolled out: %v", sets)
	}
	k.run(t, "rollout", "resume", "-n", namespace, "deployment/web")
	k.run(t, "rollout", "restart", "-n", namespace, "deployment/web")
	eventually.Agrees(t, func() string {
		if sets := k.names(t, namespace, "replicasets"); len(sets) < 3 {
			return fmt.Sprint(sets)
		}
		return ""
	})
}

func differs(got, want string) string {
	if got == want {
		return ""
	}
	return "it is " + strconv.Quote(got) + ", want " + strconv.Quote(want)
}

// TestReplicaSetLetsGo relabels a pod: it is released and replaced, and adopted again when the
// labels are back.
func TestReplicaSetLetsGo(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	namespace := newNamespace(t, k)
	k.apply(t, namespace, frontend)
	eventually.Agrees(t, func() string {
		if pods := k.names(t, namespace, "pods"); len(pods) != 3 {
			return fmt.Sprint(pods)
		}
		return ""
	})
	pod := k.names(t, namespace, "pods")[0]
	k.run(t, "label", "-n", namespace, pod, "--overwrite", "tier=debug")
	eventually.Agrees(t, func() string {
		if pods := k.names(t, namespace, "pods"); len(pods) != 4 {
			return fmt.Sprint(pods)
		}
		return ""
	})
	if owners := k.get(t, namespace, pod, "{.metadata.ownerReferences}"); owners != "" {
		t.Errorf("the pod that no longer matches has owners: %s", owners)
	}
	k.run(t, "label", "-n", namespace, pod, "--overwrite", "tier=frontend")
	eventually.Agrees(t, func() string {
		pods := k.names(t, namespace, "pods")
		owned := k.get(t, namespace, "pods", "{.items[*].metadata.ownerReferences[*].name}")
		if len(pods) != 3 || owned != "frontend frontend frontend" {
			return fmt.Sprint(pods, owned)
		}
		return ""
	})
}

// TestReplicationControllerDeleted deletes with the older option, in body and query: without it
// the pods are deleted.
func TestReplicationControllerDeleted(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	for name, orphans := range map[string]*bool{"true": new(true), "false": new(false), "absent": nil} {
		t.Run(name, func(t *testing.T) {
			namespace := newNamespace(t, k)
			k.apply(t, namespace, `
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 2
  selector: {app: web}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
`)
			eventually.Agrees(t, func() string {
				if pods := k.names(t, namespace, "pods"); len(pods) != 2 {
					return fmt.Sprint(pods)
				}
				return ""
			})
			pods := k.names(t, namespace, "pods")
			body := `{"kind":"DeleteOptions","apiVersion":"v1"}`
			if orphans != nil {
				body = fmt.Sprintf(`{"kind":"DeleteOptions","apiVersion":"v1","orphanDependents":%t}`, *orphans)
			}
			code, answer := k.plane.curl(t, "-X", "DELETE", k.plane.server+"/api/v1/namespaces/"+namespace+"/replicationcontrollers/web",
				"-H", "Content-Type: application/json", "-d", body)
			if code != "200" {
				t.Fatalf("DELETE answered %s: %s", code, answer)
			}
			k.eventuallyNames(t, namespace, "replicationcontrollers")
			// Of v1 ReplicationControllers the default is to orphan.
			if orphans == nil || *orphans {
				k.eventuallyNames(t, namespace, "pods", pods...)
			} else {
				k.eventuallyNames(t, namespace, "pods")
			}
		})
	}
}

// TestPodsHaveServiceAccounts creates a pod at once in a new namespace: its account appears in time, and
// the pod gets a token of it. An account that does not exist is refused.
func TestPodsHaveServiceAccounts(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	namespace := newNamespace(t, k)
	k.run(t, "run", "-n", namespace, "web", "--image=nginx")
	if got := k.get(t, namespace, "pod/web", "{.spec.serviceAccountName} {.spec.containers[0].volumeMounts[0].mountPath}"); got != "default /var/run/secrets/kubernetes.io/serviceaccount" {
		t.Errorf("it has %q", got)
	}
	_, complaint, err := k.try(t, "", "run", "-n", namespace, "deploy", "--image=nginx", `--overrides={"spec":{"serviceAccountName":"deploy"}}`)
	if want := fmt.Sprintf(`error looking up service account %s/deploy: serviceaccount "deploy" not found`, namespace); err == nil || !strings.Contains(complaint, want) {
		t.Errorf("%v: %q, want %s", err, complaint, want)
	}
}

// TestTokenSecretsHaveTokens: coppice up fills a Secret for a token of a service account, and deletes it with the account.
func TestTokenSecretsHaveTokens(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	namespace := newNamespace(t, k)
	k.run(t, "create", "-n", namespace, "serviceaccount", "builder")
	k.apply(t, namespace, `
apiVersion: v1
kind: Secret
metadata: {name: token, annotations: {kubernetes.io/service-account.name: builder}}
type: kubernetes.io/service-account-token
`)
	eventually.Agrees(t, func() string {
		got := k.get(t, namespace, "secret/token", `{.data.token} {.data.ca\.crt} {.data.namespace}`)
		if len(strings.Fields(got)) != 3 {
			return "it has " + got
		}
		return ""
	})
	k.run(t, "delete", "-n", namespace, "serviceaccount/builder")
	k.eventuallyNames(t, namespace, "secrets")
}

// TestNamespaceDefaultsComeBack removes the default objects of a namespace: they are recreated.
func TestNamespaceDefaultsComeBack(t *testing.T) {
	t.Parallel()
	k := shipped(t)
	namespace := newNamespace(t, k)
	k.eventuallyNames(t, namespace, "serviceaccounts,configmaps", "serviceaccount/default", "configmap/kube-root-ca.crt")
	before := k.get(t, namespace, "configmap/kube-root-ca.crt", `{.data.ca\.crt}`)
	if !strings.HasPrefix(before, "-----BEGIN CERTIFICATE-----") {
		t.Errorf("the authority is %q", before)
	}
	k.run(t, "delete", "-n", namespace, "serviceaccount/default", "configmap/kube-root-ca.crt")
	k.eventuallyNames(t, namespace, "serviceaccounts,configmaps", "serviceaccount/default", "configmap/kube-root-ca.crt")
	k.run(t, "patch", "-n", namespace, "configmap/kube-root-ca.crt", "-p", `{"data":{"ca.crt":"forged"}}`)
	eventually.Agrees(t, func() string {
		return differs(k.get(t, namespace, "configmap/kube-root-ca.crt", `{.data.ca\.crt}`), before)
	})
	k.run(t, "delete", "namespace", namespace)
	if slices.Contains(k.names(t, "default", "namespaces"), "namespace/"+namespace) {
		t.Error("the namespace is there again")
	}
}
