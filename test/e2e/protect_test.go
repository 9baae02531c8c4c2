package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestProtectedObjectsAreListedAndReleased: objects are protected, listed and released with the commands of a user, and kubectl shows
// why they stay.
func TestProtectedObjectsAreListedAndReleased(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	const namespace = "protected"
	k.run(t, "create", "namespace", namespace)
	for _, name := range []string{"data", "root", "db", "shop"} {
		k.run(t, "create", "-n", namespace, "configmap", name)
		k.run(t, "label", "-n", namespace, "configmap", name, "part="+name)
	}
	file := filepath.Join(t.TempDir(), "root.yaml")
	if err := os.WriteFile(file, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: root}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		line   string
		code   int
		want   string // on stdout
		stderr string
	}{
		{"protect list", 0, "", "no protected objects found\n"},
		{"protect cm/data", 0, "configmaps/data protected: always\n", ""},
		{"protect cm data", 0, "configmaps/data protected: always (unchanged)\n", ""},
		{"protect cm -l part=root --mode=cascading", 0, "configmaps/root protected: cascading\n", ""},
		{"protect -f " + file + " --mode=cascading", 0, "configmaps/root protected: cascading (unchanged)\n", ""},
		{"protect cm/db --of cm/shop", 0, "configmaps/db protected: outlives ConfigMap protected/shop\n", ""},
		{"protect cm/db --of cm/shop --of ns/default", 0, "configmaps/db protected: outlives ConfigMap protected/shop, Namespace default\n", ""},
		{"unprotect cm/db --of ns/default", 0, "configmaps/db protected: outlives ConfigMap protected/shop\n", ""},
		{
			"protect cm/db --of cm/default/absent", 0,
			"configmaps/db protected: outlives ConfigMap default/absent, ConfigMap protected/shop\n",
			"ConfigMap default/absent does not exist: it protects no object until it is created\n",
		},
		{"unprotect cm/db --of cm/default/absent", 0, "configmaps/db protected: outlives ConfigMap protected/shop\n", ""},
		{"protect namespace " + namespace, 0, "namespaces/protected protected: always\n", ""},
		{"protect list", 0, "NAMESPACE  OBJECT                MODE       OUTLIVES\n" +
			"           namespaces/protected  always     \nprotected  configmaps/data       always     \n" +
			"protected  configmaps/db         outlives   ConfigMap protected/shop\nprotected  configmaps/root       cascading  \n", ""},
		{"protect cm/absent", 1, "", `coppice: find the objects: configmaps "absent" not found` + "\n"},
		{"protect cm/data --mode=never", 2, "", "coppice: --mode: mode \"never\" is unknown: choose one of always, cascading, outlives, unused\n"},
		{"protect cm/shop --mode=unused", 0, "configmaps/shop protected: unused\n", ""},
		{"unprotect cm/shop", 0, "configmaps/shop no longer protected\n", ""},
		{"protect cm/data --mode=outlives", 1, "", "coppice: configmaps/data: it outlives no object yet: name one with --of\n"},
		{"protect cm/db --mode=outlives", 0, "configmaps/db protected: outlives ConfigMap protected/shop (unchanged)\n", ""},
		{"protect cm/data --mode=always --of cm/db", 2, "", "coppice: --of is for --mode=outlives, not for always\n"},
		{"protect cm/data --of cm/data", 1, "", "coppice: configmaps/data: --of names the object itself: its deletion would never be allowed\n"},
		{"protect cm", 2, "", "coppice: name objects of cm, or use --selector or --all\n"},
	} {
		out, stderr, code := tool(t, p, namespace, strings.Fields(test.line)...)
		if code != test.code || out != test.want || stderr != test.stderr {
			t.Errorf("%s: exit code %d\n%s%s\nwant %d\n%s%s", test.line, code, out, stderr, test.code, test.want, test.stderr)
		}
	}
	refusals := func(want string, args ...string) {
		t.Helper()
		if _, stderr, err := k.try(t, "", append([]string{"delete", "-n", namespace, "--timeout=20s"}, args...)...); err == nil || !strings.Contains(stderr, want) {
			t.Errorf("delete %q: %v: %s", args, err, stderr)
		}
	}
	refusals("protected by its label coppice.dev/protect=always: nobody deletes it; to lift that: coppice unprotect configmaps/data -n protected", "configmap", "data")
	refusals("it outlives ConfigMap protected/shop; to lift that", "configmap", "db")
	refusals("coppice unprotect namespaces/protected", "namespace", namespace)
	storySaysSo(t, p)
	k.run(t, "delete", "-n", namespace, "configmap", "shop")
	k.run(t, "delete", "-n", namespace, "configmap", "db", "root")
	out, stderr, code := tool(t, p, namespace, "unprotect", "cm/data", "ns/protected", "-o", "json")
	var done struct {
		Items []struct {
			Resource, Name, Mode string
			Changed              bool
		}
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != 0 || len(done.Items) != 2 || !done.Items[0].Changed || done.Items[0].Mode != "" || done.Items[1].Name != namespace {
		t.Errorf("%d, %v: %s%s", code, err, out, stderr)
	}
	k.run(t, "delete", "namespace", namespace)
}

// storySaysSo: the deletion of a namespace names the protected object that it waits for.
func storySaysSo(t *testing.T, p *plane) {
	t.Helper()
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "held-by-one")
	k.run(t, "create", "-n", "held-by-one", "configmap", "kept")
	k.run(t, "label", "-n", "held-by-one", "configmap", "kept", "coppice.dev/protect=always")
	id := k.run(t, "get", "namespace", "held-by-one", "-o", "jsonpath={.metadata.uid}")
	k.run(t, "delete", "namespace", "held-by-one", "--wait=false")
	eventually.Holds(t, "the story names what is protected", func() bool {
		out, _, code := tool(t, p, "default", "stories", id)
		return code == 0 && strings.Contains(out, "waits for ConfigMap held-by-one/kept, which is protected")
	})
	k.run(t, "label", "-n", "held-by-one", "configmap", "kept", "coppice.dev/protect-")
	k.run(t, "wait", "namespace", "held-by-one", "--for=delete", "--timeout=2m")
}
