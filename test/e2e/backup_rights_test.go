package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// downAPI is an API whose server does not exist.
const downAPI = `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.GROUP}
spec:
  group: GROUP
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {namespace: default, name: nowhere, port: 443}
`

// TestBackupsOfNamespaceUsers: users with the ClusterRoles admin and edit may not list some resources. With one flag, which
// the error names, they can delete an object after a backup. A metrics server that is down prevents no backup.
func TestBackupsOfNamespaceUsers(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", noNodes)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "shop")
	breakAPI(t, k, "metrics.k8s.io")
	key := filepath.Join(t.TempDir(), "key")
	// remove deletes a new ConfigMap as a user; the cluster's administrator if as is empty.
	remove := func(t *testing.T, as string, flags ...string) (file, stderr string, code int) {
		t.Helper()
		file = filepath.Join(t.TempDir(), "it.backup")
		k.apply(t, "shop", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
		args := []string{"delete", "configmap/a"}
		if as != "" {
			args = append(args, "--as", as)
		}
		out, said, _ := tool(t, p, "shop", append([]string{"preview"}, append(args, "-o", "json")...)...)
		var seen struct{ Digest string }
		if err := json.Unmarshal([]byte(out), &seen); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		_, stderr, code = tool(t, p, "shop", append(append(args, "--confirm", seen.Digest, "--backup", file, "--backup-key", key), flags...)...)
		return file, stderr, code
	}
	for _, role := range []string{"admin", "edit"} {
		k.run(t, "create", "rolebinding", role, "-n", "shop", "--clusterrole="+role, "--user="+role)
		t.Run(role, func(t *testing.T) {
			eventually.Agrees(t, func() string { // the ClusterRole gets its rules a moment later
				_, stderr, code := remove(t, role)
				if code != 1 || !strings.Contains(stderr, "nothing is deleted: ") || !strings.Contains(stderr, "with --backup-without=forbidden;") {
					return stderr
				}
				return ""
			})
			file, stderr, code := remove(t, role, "--backup-without=forbidden")
			if code != 0 || !strings.Contains(stderr, "may not be kept, as --backup-without says: ") || !strings.Contains(stderr, "1 object is in ") {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
			out, stderr, code := tool(t, p, "shop", "undo", file, "--backup-key", key)
			if code != 0 || !strings.Contains(out, "Restored:\n  ConfigMap shop/a\n") || !strings.Contains(out, "\nThe backup is incomplete, and may lack these and what depends on them:\n  ") {
				t.Errorf("undo: exit code %d\n%s%s", code, out, stderr)
			}
		})
	}
	if _, stderr, code := remove(t, ""); code != 0 {
		t.Errorf("without the metrics server: exit code %d\n%s", code, stderr)
	}
	breakAPI(t, k, "trees.example.com")
	if _, stderr, code := remove(t, ""); code != 1 || !strings.Contains(stderr, "with --backup-without=trees.example.com;") {
		t.Errorf("without another API: exit code %d\n%s", code, stderr)
	}
	if _, stderr, code := remove(t, "", "--backup-without=trees.example.com"); code != 0 {
		t.Errorf("without another API, which the user accepts: exit code %d\n%s", code, stderr)
	}
}

// breakAPI registers an API whose server does not exist.
func breakAPI(t *testing.T, k kubectl, group string) {
	t.Helper()
	k.apply(t, "default", strings.ReplaceAll(downAPI, "GROUP", group))
	eventually.Agrees(t, func() string {
		if line := k.run(t, "get", "apiservices", "v1beta1."+group, "--no-headers"); !strings.Contains(line, "False") {
			return line
		}
		return ""
	})
}
