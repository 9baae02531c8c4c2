package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// TestUndoFile: a namespace is kept in a file, deleted, and made again as one would type it.
func TestUndoFile(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	namespace := newNamespace(t, k)
	k.run(t, "create", "-n", namespace, "configmap", "owner", "--from-literal=x=1")
	k.run(t, "create", "-n", namespace, "secret", "generic", "password", "--from-literal=p=hunter2hunter2")
	owner := k.run(t, "get", "-n", namespace, "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	k.run(t, "patch", "-n", namespace, "secret", "password", "--type=merge", "-p",
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+owner+`"}]}}`)
	dir := t.TempDir()
	file, key := filepath.Join(dir, "it.backup"), filepath.Join(dir, "key")
	keep := []string{"preview", "delete", "namespace", namespace, "-o", "name", "--backup", file, "--backup-key", key}
	if out, stderr, code := tool(t, p, namespace, keep...); code != 0 || !strings.Contains(stderr, "the key of backups is new, in "+key) {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", "aHVudGVyM", "password", "ConfigMap"} {
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("%q can be read in the file", secret)
		}
	}
	for _, name := range []string{file, key} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if _, stderr, code := tool(t, p, namespace, keep...); code != 1 || !strings.Contains(stderr, "already exists") {
		t.Errorf("a second time: exit code %d, %s", code, stderr)
	}
	again := func(flags ...string) (string, string, int) {
		return tool(t, p, namespace, append([]string{"undo", file, "--backup-key", key}, flags...)...)
	}
	if out, stderr, code := again(); code != 0 || !strings.Contains(out, "Still there:") {
		t.Errorf("while all is there: exit code %d\n%s%s", code, out, stderr)
	}
	k.run(t, "delete", "namespace", namespace)
	if out, _, code := again("--dry-run"); code != 0 || !strings.Contains(out, "Would be restored:\n  Namespace "+namespace+"\n") {
		t.Errorf("dry run: exit code %d\n%s", code, out)
	}
	if _, _, err := k.try(t, "", "get", "namespace", namespace); err == nil {
		t.Error("a dry run has made something")
	}
	if out, stderr, code := again(); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	k.settle(t)
	got := k.run(t, "get", "-n", namespace, "secret", "password", "-o", "jsonpath={.data.p} {.metadata.ownerReferences[0].uid}")
	now := k.run(t, "get", "-n", namespace, "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	if got != "aHVudGVyMmh1bnRlcjI= "+now || now == owner {
		t.Errorf("the secret is %q, its owner %s, which was %s", got, now, owner)
	}
	out, _, code := again("-o", "json")
	var report struct {
		Counts []struct {
			Outcome string
			Objects int
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Counts[0].Outcome != "MadeBefore" || report.Counts[0].Objects < 3 {
		t.Errorf("again: exit code %d, %v\n%s", code, err, out)
	}
	impostor(t, p, namespace, owner, again)
	if _, stderr, code := tool(t, p, namespace, "undo", file, "--backup-key", filepath.Join(dir, "none")); code != 1 || !strings.Contains(stderr, "name the file that has it") {
		t.Errorf("without the key: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := tool(t, p, namespace, "undo", key, "--backup-key", key); code != 1 || !strings.Contains(stderr, "it is no backup") {
		t.Errorf("no backup: exit code %d, %s", code, stderr)
	}
}

// impostor takes the name of an owner that was made again, and says in the annotation of an undo that it was made from it:
// dependents that are made again do not become its own, unless the user says so.
func impostor(t *testing.T, p *plane, namespace, was string, again func(...string) (string, string, int)) {
	t.Helper()
	k := ourKubectl(p)
	k.run(t, "delete", "-n", namespace, "configmap", "owner")
	k.settle(t)
	k.run(t, "create", "-n", namespace, "configmap", "owner")
	k.run(t, "annotate", "-n", namespace, "configmap", "owner", undo.Annotation+"="+was)
	owners := func() string {
		return k.run(t, "get", "-n", namespace, "secret", "password", "-o", "jsonpath={.metadata.ownerReferences[*].uid}")
	}
	if out, stderr, code := again(); code != 1 || !strings.Contains(out, "another object has its name") {
		t.Errorf("with an impostor: exit code %d\n%s%s", code, out, stderr)
	}
	if got := owners(); got != "" {
		t.Errorf("the impostor has got a dependent: %s", got)
	}
	again("--relink")
	if got, now := owners(), k.run(t, "get", "-n", namespace, "configmap", "owner", "-o", "jsonpath={.metadata.uid}"); got != now {
		t.Errorf("with --relink, the owners are %q, want %q", got, now)
	}
}
