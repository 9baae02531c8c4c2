package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestR29_RecycleBin: objects that are deleted on a server with --recycle are restored by name, also after a
// restart; the kept objects cannot be read on the disk, nor by users who may not get them.
func TestR29_RecycleBin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"--data-dir", dir, "--secure-port=0", byHand, noNodes, "--recycle=10Mi,1h"}
	p, err := start(args...)
	if err != nil {
		t.Fatal(err)
	}
	k := ourKubectl(p)
	const namespace = "recycled"
	k.run(t, "create", "namespace", namespace)
	k.run(t, "create", "-n", namespace, "secret", "generic", "before", "--from-literal=p=hunter2hunter2")
	hold(t, k, namespace, "held")
	k.run(t, "delete", "-n", namespace, "configmap", "held", "--wait=false")
	for _, what := range []string{"configmap/held", k.get(t, namespace, "configmap/held", "{.metadata.uid}")} {
		if out, errs, code := coppice(t, "undo", "--kubeconfig", p.kubeconfig, "-n", namespace, what); code != 1 || !strings.Contains(errs, "is still being deleted") {
			t.Errorf("undo of %s, which is being deleted: exit code %d, %s%s", what, code, out, errs)
		}
	}
	k.run(t, "patch", "-n", namespace, "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	k.run(t, "delete", "-n", namespace, "secret", "before")
	removed := time.Now()
	k.run(t, "create", "-n", namespace, "configmap", "owner", "--from-literal=x=1")
	k.run(t, "create", "-n", namespace, "secret", "generic", "password", "--from-literal=p=hunter2hunter2")
	owner := k.run(t, "get", "-n", namespace, "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	k.run(t, "patch", "-n", namespace, "secret", "password", "--type=merge", "-p",
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+owner+`"}]}}`)
	definition := filepath.Join(t.TempDir(), "definition.yaml")
	if err := os.WriteFile(definition, []byte(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.recycled.example.com},
spec: {group: recycled.example.com, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget},
versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k.run(t, "create", "-f", definition)
	k.run(t, "delete", "crd", "widgets.recycled.example.com")
	// A deletionTimestamp is to the second: what went in the second before the namespace counts as its content.
	eventually.Holds(t, "two seconds are over", func() bool { return time.Now().Unix() > removed.Unix()+1 })
	k.run(t, "delete", "namespace", namespace)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "recycle.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "aHVudGVyM", "password", "ConfigMap"} {
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("%q can be read in the database", secret)
		}
	}
	p = startPlane(t, args...)
	k = ourKubectl(p)
	if out, stderr, code := tool(t, p, "default", "undo", "namespace/"+namespace); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	k.settle(t)
	got := k.run(t, "get", "-n", namespace, "secret", "-o", "jsonpath={.items[*].metadata.name} {.items[0].data.p} {.items[0].metadata.ownerReferences[0].uid}")
	now := k.run(t, "get", "-n", namespace, "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	if got != "password aHVudGVyMmh1bnRlcjI= "+now || now == owner {
		t.Errorf("the secrets are %q, the owner %s, which was %s", got, now, owner)
	}
	for _, line := range []string{"undo crd/widgets.recycled.example.com", "undo secret before"} {
		if out, stderr, code := tool(t, p, namespace, strings.Fields(line)...); code != 0 || !strings.Contains(out, "Restored: 1") {
			t.Errorf("%s: exit code %d\n%s%s", line, code, out, stderr)
		}
	}
	if _, stderr, code := tool(t, p, namespace, "undo", "secret/nothing"); code != 1 || !strings.Contains(stderr, "the recycle bin does not have secret/nothing") {
		t.Errorf("what was not deleted: exit code %d, %s", code, stderr)
	}

	for line, says := range map[string]string{
		"undo namespace/nothing": "the recycle bin does not have namespace/nothing, or", "undo nothing": "nothing is not a file, a TYPE/NAME or a UID",
		"undo /tmp/no/such/file": "is not a file, a TYPE/NAME or a UID",
	} {
		if _, stderr, code := tool(t, p, namespace, strings.Fields(line)...); code != 1 || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit code %d, %s", line, code, stderr)
		}
	}
	undoesStory(t, p, namespace)

	k.run(t, "delete", "-n", namespace, "configmap", "owner")
	k.settle(t)
	k.run(t, "create", "-n", namespace, "rolebinding", "reads", "--clusterrole=reads", "--user=ann")
	k.run(t, "create", "clusterrole", "reads", "--verb=get", "--resource=configmaps")
	seen := k.run(t, "get", "--raw", "/coppice/v1/deleted", "--as=ann")
	if !strings.Contains(seen, `"owner"`) || strings.Contains(seen, "password") || strings.Contains(seen, "before") {
		t.Errorf("who may get configmaps is told %s", seen)
	}
	if seen := k.run(t, "get", "--raw", "/coppice/v1/deleted", "--as=bob"); strings.TrimSpace(seen) != `{"items":[]}` {
		t.Errorf("a user without the right to get gets %s", seen)
	}
	whole := k.run(t, "get", "--raw", "/coppice/v1/deleted?uid="+now, "--as=ann")
	if !strings.Contains(whole, `"x":"1"`) || strings.Contains(whole, "aHVudGVy") || !strings.Contains(whole, "secrets: objects that you may not get are left out") {
		t.Errorf("what went with a configmap is %s", whole)
	}
}

// TestR29_UndoAtOnceRestoresAll: an undo directly after a deletion restores all of it, not only the objects that the
// recycle bin has read, and gives orphans their owner again.
func TestR29_UndoAtOnceRestoresAll(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", byHand, noNodes, "--recycle=10Mi,1h")
	k := ourKubectl(p)
	namespace := newNamespace(t, k)
	k.run(t, "create", "-n", namespace, "configmap", "owner")
	uid := k.get(t, namespace, "configmap/owner", "{.metadata.uid}")
	const dependents = 200
	var list strings.Builder
	for n := range dependents {
		fmt.Fprintf(&list, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dependent-%d",
"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`+"\n---\n", n, uid)
	}
	k.apply(t, namespace, list.String())
	k.run(t, "delete", "-n", namespace, "configmap", "owner", "--cascade=foreground")
	all := fmt.Sprintf("Restored: %d\n", dependents+1)
	if out, stderr, code := tool(t, p, namespace, "undo", "configmap/owner"); code != 0 || !strings.Contains(out, all) {
		t.Errorf("undo of the owner: exit code %d\n%s%s", code, out, stderr)
	}
	k.run(t, "delete", "-n", namespace, "configmap", "owner", "--cascade=orphan")
	if out, stderr, code := tool(t, p, namespace, "undo", "configmap/owner"); code != 0 || !strings.Contains(out, "Restored: 1\n") {
		t.Errorf("undo of the orphan deletion: exit code %d\n%s%s", code, out, stderr)
	}
	uid = k.get(t, namespace, "configmap/owner", "{.metadata.uid}")
	owners := k.get(t, namespace, "configmaps", "{.items[*].metadata.ownerReferences[*].uid}")
	if count := strings.Count(owners, uid); count != dependents {
		t.Errorf("of %d orphans, %d have their owner again", dependents, count)
	}
	k.run(t, "delete", "namespace", namespace)
	if out, stderr, code := tool(t, p, namespace, "undo", "namespace/"+namespace); code != 0 || !strings.Contains(out, "ConfigMap "+namespace+"/dependent-199\n") {
		t.Errorf("undo of the namespace: exit code %d\n%s%s", code, out, stderr)
	}
}

// TestR29_UndoOfStatefulSetKeepsItsClaims: the controller of a restored StatefulSet finds the restored claims, and
// creates no empty ones in their places.
func TestR29_UndoOfStatefulSetKeepsItsClaims(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", noNodes, "--recycle=10Mi,1h")
	k := ourKubectl(p)
	namespace := newNamespace(t, k)
	set := strings.Replace(statefulWeb, "replicas: 3", "replicas: 3\n  podManagementPolicy: Parallel\n  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}", 1)
	k.apply(t, namespace, set)
	owners := func() string {
		return k.get(t, namespace, "persistentvolumeclaims", "{.items[*].metadata.ownerReferences[*].uid}")
	}
	setUID := func() string { return k.get(t, namespace, "statefulset/web", "{.metadata.uid}") }
	threeTimes := func(uid string) string { return strings.Join([]string{uid, uid, uid}, " ") }
	owned := threeTimes(setUID())
	eventually.Agrees(t, func() string { return differs(owners(), owned) })
	k.run(t, "annotate", "-n", namespace, "persistentvolumeclaims", "--all", "content=old")
	k.run(t, "delete", "-n", namespace, "statefulset", "web")
	k.eventuallyNames(t, namespace, "pods")
	k.eventuallyNames(t, namespace, "persistentvolumeclaims")
	if out, stderr, code := tool(t, p, namespace, "undo", "statefulset/web"); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	if got := k.get(t, namespace, "persistentvolumeclaims", "{.items[*].metadata.annotations.content}"); got != "old old old" {
		t.Errorf("the contents of the claims are %q", got)
	}
	if got, want := owners(), threeTimes(setUID()); got != want {
		t.Errorf("the owners of the claims are %s, want %s", got, want)
	}
}

// undoesStory: a deletion of several objects at once is one story, which shows how to undo it, and is undone as a
// whole.
func undoesStory(t *testing.T, p *plane, namespace string) {
	t.Helper()
	k := ourKubectl(p)
	for _, name := range []string{"one", "two", "three"} {
		k.run(t, "create", "-n", namespace, "configmap", name)
		k.run(t, "label", "-n", namespace, "configmap", name, "at=once")
	}
	k.run(t, "delete", "--raw", "/api/v1/namespaces/"+namespace+"/configmaps?labelSelector=at=once")
	k.settle(t)
	type item struct {
		ID   string
		More int
	}
	var list struct{ Items []item }
	out, stderr, code := tool(t, p, namespace, "stories", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, stderr)
	}
	at := slices.IndexFunc(list.Items, func(one item) bool { return one.More == 2 })
	if at < 0 {
		t.Fatalf("no story is of three objects: %s", out)
	}
	id := list.Items[at].ID
	if out, stderr, code := tool(t, p, namespace, "stories", id); code != 0 || !strings.HasSuffix(out, "to undo it: coppice undo "+id+"\n") {
		t.Errorf("stories: exit code %d\n%s%s", code, out, stderr)
	}
	if out, stderr, code := tool(t, p, namespace, "undo", id); code != 0 || !strings.Contains(out, "Restored: 3") {
		t.Errorf("undo: exit code %d\n%s%s", code, out, stderr)
	}
}
