package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tool runs a command of coppice in a namespace of a control plane, and returns its stdout, its
// stderr and its exit code.
func tool(t *testing.T, p *plane, namespace string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	command := exec.Command(binary, append(args, "--kubeconfig", p.kubeconfig, "-n", namespace)...)
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), said.String(), command.ProcessState.ExitCode()
}

// TestDeleteAsPreviewed: a deletion is previewed, refused when something has changed, and is as previewed
// when nothing has.
func TestDeleteAsPreviewed(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "confirmed")
	owned(t, k, "confirmed")
	target := []string{"rs/frontend", "--cascade", "foreground"}
	digest := func() string {
		t.Helper()
		out, stderr, code := tool(t, p, "confirmed", append([]string{"preview", "delete", "-o", "json"}, target...)...)
		var report struct{ Digest string }
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || report.Digest == "" {
			t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
		}
		return report.Digest
	}
	if out, stderr, code := tool(t, p, "confirmed", append([]string{"preview", "delete", "--max=3", "-o", "name"}, target...)...); code != 3 || strings.Count(out, "pod/frontend-") != 3 || !strings.Contains(stderr, "4 objects would be deleted, more than the 3 of --max") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	seen := digest()
	if digest() != seen {
		t.Error("the digest is another one although nothing has changed")
	}
	k.run(t, "annotate", "-n", "confirmed", "pod", "frontend-1", "changed=yes")
	for name, args := range map[string][]string{"changed": {"--confirm", seen}, "too many": {"--max", "3", "--confirm", digest()}, "no digest": nil} {
		if out, stderr, code := tool(t, p, "confirmed", append(append([]string{"delete"}, target...), args...)...); code == 0 || out != "" {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, stderr)
		}
	}
	k.eventuallyNames(t, "confirmed", "replicasets,pods", "replicaset.apps/frontend", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
	if out, stderr, code := tool(t, p, "confirmed", append([]string{"delete", "--confirm", digest()}, target...)...); code != 0 || out != "replicasets.apps/frontend deleted\n" {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	k.eventuallyNames(t, "confirmed", "replicasets,pods")
}

// TestDeleteWhatManifestsName: the previewed file stands for its digest, and says what has changed since.
func TestDeleteWhatManifestsName(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "manifests")
	owned(t, k, "manifests")
	dir := t.TempDir()
	manifest, confirmed := filepath.Join(dir, "frontend.yaml"), filepath.Join(dir, "preview.json")
	writeFile(t, manifest, "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: frontend}}")
	foretell := func() {
		t.Helper()
		out, stderr, code := tool(t, p, "manifests", "preview", "delete", "-f", manifest, "-o", "json")
		if code != 0 {
			t.Fatalf("exit code %d: %s%s", code, out, stderr)
		}
		writeFile(t, confirmed, out)
	}
	if out, stderr, code := tool(t, p, "manifests", "preview", "delete", "-f", manifest, "-o", "tree"); code != 0 ||
		!strings.HasPrefix(out, "ReplicaSet.apps manifests/frontend: deleted") || strings.Count(out, "── Pod manifests/frontend-") != 3 {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	foretell()
	k.run(t, "patch", "-n", "manifests", "pod", "frontend-1", "--type=merge", `-p={"metadata":{"finalizers":["example.com/hold"]}}`)
	_, stderr, code := tool(t, p, "manifests", "delete", "-f", manifest, "--confirm-from", confirmed)
	if want := "Pod manifests/frontend-1: waiting, by the garbage collector; waits for finalizer example.com/hold, before: deleted"; code != 1 || !strings.Contains(stderr, want) || strings.Contains(stderr, "frontend-2") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	k.run(t, "patch", "-n", "manifests", "pod", "frontend-1", "--type=merge", `-p={"metadata":{"finalizers":null}}`)
	foretell()
	if out, stderr, code := tool(t, p, "manifests", "delete", "-f", manifest, "--confirm-from", confirmed); code != 0 || out != "replicasets.apps/frontend deleted\n" {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	k.eventuallyNames(t, "manifests", "replicasets,pods")
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKubectlPlugin: kubectl finds the binary under the names of a plugin, runs it, and completes its
// command line.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	dir := t.TempDir()
	for _, name := range []string{"kubectl", "kubectl-coppice", "kubectl_complete-coppice"} {
		if err := os.Symlink(binary, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		line, want string
	}{
		{"coppice preview delete namespace/kube-node-lease -o name", "namespace/kube-node-lease\n"},
		{"coppice preview delete --help", "\n  kubectl coppice preview delete deployment/web\n"},
		{"coppice preview delete --help", "Usage:\n  kubectl coppice preview delete TYPE/NAME"},
		{"__complete coppice preview d", "delete\tPredict the outcome of a deletion"},
		{"__complete coppice preview delete --cascade f", "foreground\n"},
	} {
		command := exec.Command(filepath.Join(dir, "kubectl"), strings.Fields(test.line)...)
		command.Env = append(os.Environ(), "PATH="+dir, "KUBECONFIG="+p.kubeconfig)
		if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), test.want) {
			t.Errorf("kubectl %s: %v, got\n%s\nwant %q", test.line, err, out, test.want)
		}
	}
}

// TestPreviewOfAClaim: a volume claim that a pod uses is predicted to wait for the pod, and does.
func TestPreviewOfAClaim(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "protected-claims")
	manifest := filepath.Join(t.TempDir(), "claim.yaml")
	writeFile(t, manifest, `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, finalizers: [kubernetes.io/pvc-protection]}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {nodeName: elsewhere, containers: [{name: c, image: i}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}
`)
	k.run(t, "create", "-n", "protected-claims", "-f", manifest)
	out, stderr, code := tool(t, p, "protected-claims", "preview", "delete", "pvc/data")
	if code != 0 || !strings.Contains(out, "PersistentVolumeClaim protected-claims/data; waits for what uses it: Pod protected-claims/user\n") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	k.run(t, "delete", "-n", "protected-claims", "pvc/data", "--wait=false")
	if got, want := k.run(t, "get", "-n", "protected-claims", "pvc/data", "-o", "jsonpath={.metadata.finalizers[0]}"), "kubernetes.io/pvc-protection"; got != want {
		t.Errorf("its finalizer is %q, want %q", got, want)
	}
	k.run(t, "delete", "-n", "protected-claims", "pod/user", "--force", "--grace-period=0")
	k.eventuallyNames(t, "protected-claims", "persistentvolumeclaims,pods")
}
