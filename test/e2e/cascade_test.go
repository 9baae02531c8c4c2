package e2e

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

//go:embed testdata/frontend.yaml
var frontend string

const replicaSets = "/apis/apps/v1/namespaces/%s/replicasets/frontend"

// owned creates the ReplicaSet of the Kubernetes documentation with three pods
// that it owns.
func owned(t *testing.T, k kubectl, namespace string) {
	t.Helper()
	k.apply(t, namespace, frontend)
	uid := k.get(t, namespace, "replicaset/frontend", "{.metadata.uid}")
	var pods strings.Builder
	for i := range 3 {
		pods.WriteString(pod(fmt.Sprintf("frontend-%d", i), ownerOf("apps/v1", "ReplicaSet", "frontend", uid, true)))
	}
	k.apply(t, namespace, pods.String())
}

// pod returns a manifest of a pod with owner references and finalizers.
func pod(name, owners string, finalizers ...string) string {
	m := fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n", name)
	if len(finalizers) > 0 {
		m += "  finalizers: [" + strings.Join(finalizers, ", ") + "]\n"
	}
	if owners != "" {
		m += "  ownerReferences:\n" + owners
	}
	return m + "spec:\n  containers:\n  - name: main\n    image: busybox\n"
}

// configMap returns a manifest of a config map with owner references.
func configMap(name, owners string) string {
	m := fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n", name)
	if owners != "" {
		m += "  ownerReferences:\n" + owners
	}
	return m
}

// ownerOf returns one owner reference.
func ownerOf(apiVersion, kind, name, uid string, blocking bool) string {
	return fmt.Sprintf("  - apiVersion: %s\n    kind: %s\n    name: %s\n    uid: %s\n    blockOwnerDeletion: %t\n", apiVersion, kind, name, uid, blocking)
}

// uidOf reads an object's UID.
func uidOf(t *testing.T, k kubectl, namespace, object string) string {
	t.Helper()
	return k.get(t, namespace, object, "{.metadata.uid}")
}

// TestDeletionPolicies deletes an owner under each policy, in each way a user has.
func TestDeletionPolicies(t *testing.T) {
	ways := map[string]func(t *testing.T, k kubectl, namespace, policy string){
		"kubectl --cascade": func(t *testing.T, k kubectl, namespace, policy string) {
			k.run(t, "delete", "-n", namespace, "replicaset", "frontend", "--cascade="+strings.ToLower(policy))
		},
		"curl": func(t *testing.T, k kubectl, namespace, policy string) {
			code, body := k.plane.curl(t, "-X", "DELETE", k.plane.server+fmt.Sprintf(replicaSets, namespace),
				"-H", "Content-Type: application/json", "-d", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"`+policy+`"}`)
			checkAnswer(t, policy, code, body)
		},
		"curl through kubectl proxy": func(t *testing.T, k kubectl, namespace, policy string) {
			code, body := curl(t, "-X", "DELETE", k.proxy(t)+fmt.Sprintf(replicaSets, namespace),
				"-H", "Content-Type: application/json", "-d", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"`+policy+`"}`)
			checkAnswer(t, policy, code, body)
		},
	}
	withKubectl(t, func(t *testing.T, k kubectl, _ string) {
		for way, remove := range ways {
			for _, policy := range []string{"Background", "Foreground", "Orphan"} {
				t.Run(way+"/"+policy, func(t *testing.T) {
					t.Parallel()
					namespace := newNamespace(t, k)
					owned(t, k, namespace)
					remove(t, k, namespace, policy)
					k.eventuallyNames(t, namespace, "replicasets")
					if policy != "Orphan" {
						k.eventuallyNames(t, namespace, "pods")
						return
					}
					k.eventuallyNames(t, namespace, "pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
					if left := k.get(t, namespace, "pods", "{.items[*].metadata.ownerReferences}"); left != "" {
						t.Errorf("orphaned pods still have owner references: %s", left)
					}
				})
			}
		}
	})
}

// checkAnswer checks the answer to a DELETE against R20.
func checkAnswer(t *testing.T, policy, code, body string) {
	t.Helper()
	if code != "200" {
		t.Fatalf("DELETE answered %s: %s", code, body)
	}
	var answer struct {
		Kind     string
		Status   any
		Details  struct{ UID string }
		Metadata struct {
			UID               string
			DeletionTimestamp string
			Finalizers        []string
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	switch policy {
	case "Background":
		if answer.Kind != "Status" || answer.Status != "Success" || answer.Details.UID == "" {
			t.Errorf("a background DELETE answered %s, want a Status with the uid", body)
		}
	case "Foreground", "Orphan":
		want := map[string]string{"Foreground": "foregroundDeletion", "Orphan": "orphan"}[policy]
		if answer.Kind != "ReplicaSet" || answer.Metadata.DeletionTimestamp == "" || strings.Join(answer.Metadata.Finalizers, ",") != want {
			t.Errorf("a DELETE with policy %s answered %s, want the ReplicaSet with finalizer %s", policy, body, want)
		}
	}
}

// TestOrphanDependents uses the older option, in the query and in the body.
func TestOrphanDependents(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, _ string) {
		for _, orphan := range []bool{true, false} {
			for _, where := range []string{"query", "body"} {
				t.Run(fmt.Sprintf("%s=%t", where, orphan), func(t *testing.T) {
					t.Parallel()
					namespace := newNamespace(t, k)
					owned(t, k, namespace)
					url := k.plane.server + fmt.Sprintf(replicaSets, namespace)
					args := []string{"-X", "DELETE", fmt.Sprintf("%s?orphanDependents=%t", url, orphan)}
					if where == "body" {
						args = []string{"-X", "DELETE", url, "-H", "Content-Type: application/json", "-d", fmt.Sprintf(`{"orphanDependents":%t}`, orphan)}
					}
					if code, body := k.plane.curl(t, args...); code != "200" {
						t.Fatalf("DELETE answered %s: %s", code, body)
					}
					k.eventuallyNames(t, namespace, "replicasets")
					if orphan {
						k.eventuallyNames(t, namespace, "pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
					} else {
						k.eventuallyNames(t, namespace, "pods")
					}
				})
			}
		}
		t.Run("both options", func(t *testing.T) {
			namespace := newNamespace(t, k)
			owned(t, k, namespace)
			code, body := k.plane.curl(t, "-X", "DELETE", k.plane.server+fmt.Sprintf(replicaSets, namespace),
				"-H", "Content-Type: application/json", "-d", `{"orphanDependents":true,"propagationPolicy":"Foreground"}`)
			if code != "422" || !strings.Contains(body, "orphanDependents and deletionPropagation cannot be both set") {
				t.Errorf("DELETE answered %s: %s", code, body)
			}
			k.eventuallyNames(t, namespace, "replicasets", "replicaset.apps/frontend")
		})
	})
}

// TestBlockingDependentHoldsForegroundDeletion has a dependent with a foreign finalizer hold the
// owner, and releases the owner in each of the three ways.
func TestBlockingDependentHoldsForegroundDeletion(t *testing.T) {
	release := map[string]func(t *testing.T, k kubectl, namespace string){
		"the dependent goes": func(t *testing.T, k kubectl, namespace string) {
			k.run(t, "patch", "-n", namespace, "pod", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		},
		"the owner reference goes": func(t *testing.T, k kubectl, namespace string) {
			k.run(t, "patch", "-n", namespace, "pod", "held", "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`)
		},
		"the reference blocks no more": func(t *testing.T, k kubectl, namespace string) {
			k.run(t, "patch", "-n", namespace, "pod", "held", "--type=json", "-p", `[{"op":"replace","path":"/metadata/ownerReferences/0/blockOwnerDeletion","value":false}]`)
		},
	}
	withKubectl(t, func(t *testing.T, k kubectl, _ string) {
		for way, free := range release {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				namespace := newNamespace(t, k)
				k.apply(t, namespace, frontend)
				owner := ownerOf("apps/v1", "ReplicaSet", "frontend", uidOf(t, k, namespace, "replicaset/frontend"), true)
				k.apply(t, namespace, pod("free", owner)+pod("held", owner, "example.com/hold"))
				k.run(t, "delete", "-n", namespace, "replicaset", "frontend", "--cascade=foreground", "--wait=false")
				k.eventuallyNames(t, namespace, "pods", "pod/held")
				if at := k.get(t, namespace, "pod/held", "{.metadata.deletionTimestamp}"); at == "" {
					t.Error("the held pod is not being deleted")
				}
				if got := k.get(t, namespace, "replicaset/frontend", "{.metadata.finalizers}"); got != `["foregroundDeletion"]` {
					t.Errorf("finalizers of the owner while it is held: %s", got)
				}
				free(t, k, namespace)
				k.eventuallyNames(t, namespace, "replicasets")
				// Remove what two of the ways leave.
				k.try(t, "", "patch", "-n", namespace, "pod", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			})
		}
	})
}

// TestTwoOwners deletes one of two owners: the dependents stay with the other.
func TestTwoOwners(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, _ string) {
		for _, policy := range []string{"background", "foreground"} {
			t.Run(policy, func(t *testing.T) {
				t.Parallel()
				namespace := newNamespace(t, k)
				k.apply(t, namespace, configMap("first", "")+configMap("second", ""))
				first := ownerOf("v1", "ConfigMap", "first", uidOf(t, k, namespace, "configmap/first"), true)
				second := ownerOf("v1", "ConfigMap", "second", uidOf(t, k, namespace, "configmap/second"), true)
				k.apply(t, namespace, pod("both", first+second)+pod("one", first))
				k.run(t, "delete", "-n", namespace, "configmap", "first", "--cascade="+policy)
				k.eventuallyNames(t, namespace, "pods", "pod/both")
				eventually.Agrees(t, func() string {
					if got := k.get(t, namespace, "pod/both", "{.metadata.ownerReferences[*].name}"); got != "second" {
						return "owners of the pod with two owners: " + got
					}
					return ""
				})
				if at := k.get(t, namespace, "pod/both", "{.metadata.deletionTimestamp}"); at != "" {
					t.Error("the pod with another owner is being deleted")
				}
			})
		}
	})
}

// TestDependentOfNobody creates a dependent whose owner does not exist.
func TestDependentOfNobody(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		nobody := ownerOf("apps/v1", "ReplicaSet", "nobody", "11111111-2222-3333-4444-555555555555", false)
		k.apply(t, namespace, configMap("kept", "")+configMap("stray", nobody))
		k.eventuallyNames(t, namespace, "configmaps", "configmap/kept")
	})
}

// TestManyDependents collects a thousand dependents of one owner.
func TestManyDependents(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := kubectls(t, p)[0]
	namespace := newNamespace(t, k)
	k.apply(t, namespace, configMap("owner", ""))
	owner := ownerOf("v1", "ConfigMap", "owner", uidOf(t, k, namespace, "configmap/owner"), true)
	const many = 1000
	var manifest strings.Builder
	for i := range many {
		manifest.WriteString(configMap(fmt.Sprintf("dependent-%04d", i), owner))
	}
	if out, errs, err := k.try(t, manifest.String(), "create", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	if got := len(k.names(t, namespace, "configmaps")); got != many+1 {
		t.Fatalf("%d config maps were created, want %d", got, many+1)
	}
	k.run(t, "delete", "-n", namespace, "configmap", "owner")
	k.eventuallyNames(t, namespace, "configmaps")
}
