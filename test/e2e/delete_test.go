package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// tool runs a command of coppice in a namespace of a control plane, and returns its output, what it
// says on stderr, and its exit code.
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
