package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestDeleteWhenUnused: the command waits for the last user of an object, deletes it, and waits for the end.
func TestDeleteWhenUnused(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	namespace := newNamespace(t, k)
	k.run(t, "create", "-n", namespace, "secret", "generic", "key")
	k.apply(t, namespace, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: user}, imagePullSecrets: [{name: key}]}")
	const by = "in use by ServiceAccount NS/user (imagePullSecrets[0].name)"
	label := func() string { return k.get(t, namespace, "secret/key", `{.metadata.labels.coppice\.dev/protect}`) }

	out, stderr, code := tool(t, p, namespace, "delete", "secret/key", "--when-unused", "--max=1", "--timeout=10s")
	if code != 7 || !strings.Contains(stderr, strings.ReplaceAll(by, "NS", namespace)) || !strings.Contains(out, "Secret "+namespace+"/key: timed out") {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	if got := label(); got != "" {
		t.Errorf("the label that the command has set is %q afterwards", got)
	}

	type ended struct {
		out, stderr string
		code        int
	}
	end := make(chan ended, 1)
	go func() {
		out, stderr, code := tool(t, p, namespace, "delete", "secret/key", "--when-unused", "--max=1", "--timeout=60s", "-o", "json")
		end <- ended{out, stderr, code}
	}()
	eventually.Agrees(t, func() string {
		if label() != "unused" {
			return "the command has not labelled the object"
		}
		return ""
	})
	k.run(t, "delete", "-n", namespace, "serviceaccount", "user")
	got := <-end
	if got.code != 0 {
		t.Fatalf("exit code %d\n%s%s", got.code, got.out, got.stderr)
	}
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	for n, line := range lines {
		var report struct{ State string }
		if err := json.Unmarshal([]byte(line), &report); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if want := map[bool]string{true: "Gone", false: "Waiting"}[n == len(lines)-1]; report.State != want {
			t.Errorf("line %d of %d has state %s", n+1, len(lines), report.State)
		}
	}
	if len(k.names(t, namespace, "secrets")) != 0 {
		t.Error("the Secret is still there")
	}
}

// TestDeleteWhenUnusedRefuses: nothing is deleted without a bound, and the protection of others is kept.
func TestDeleteWhenUnusedRefuses(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	namespace := newNamespace(t, k)
	for _, name := range []string{"a", "kept", "owner"} {
		k.run(t, "create", "-n", namespace, "configmap", name)
	}
	k.run(t, "label", "-n", namespace, "configmap", "kept", "coppice.dev/protect=always")
	uid := k.get(t, namespace, "configmap/owner", "{.metadata.uid}")
	k.apply(t, namespace, "{apiVersion: v1, kind: ConfigMap, metadata: {name: dependent, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: "+uid+"}]}}")
	for _, test := range []struct {
		line, want string
		code       int
	}{
		{"delete cm/a --when-unused", "--when-unused needs --max", 2},
		{"delete cm/a --when-unused --max 1 --confirm 1", "leave them out", 2},
		{"delete cm/a --when-unused --max 1 -o name", "choose one of text, json, yaml", 2},
		{"delete cm/a -o json --confirm 1", "--output is for --when-unused", 2},
		{"delete cm a kept --when-unused --max 2", "--when-unused is for one object, and these are 2", 2},
		{"delete cm/kept --when-unused --max 1", "configmaps/kept is protected in mode always", 1},
		{"delete cm/owner --when-unused --max 1", "2 objects would be deleted, more than the 1 of --max", 3},
		{"delete cm/owner --when-unused --max 2", "gone, objects in all: 2", 0},
	} {
		out, stderr, code := tool(t, p, namespace, strings.Fields(test.line)...)
		if code != test.code || !strings.Contains(out+stderr, test.want) {
			t.Errorf("%s: exit code %d\n%s%s\nwant %d, %s", test.line, code, out, stderr, test.code, test.want)
		}
	}
	if got := k.names(t, namespace, "configmaps", "-l", "coppice.dev/protect=unused"); len(got) != 0 {
		t.Errorf("the command leaves its label on %v", got)
	}
}
