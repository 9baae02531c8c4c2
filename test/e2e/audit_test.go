package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/audit"
)

// TestAuditOfWorkloads: in a cluster at work nothing is wrong.
func TestAuditOfWorkloads(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0")
	k := ourKubectl(p)
	k.run(t, "create", "deployment", "web", "--image=busybox", "--replicas=2")
	k.run(t, "create", "service", "clusterip", "web", "--tcp=80")
	k.run(t, "create", "job", "once", "--image=busybox")
	k.run(t, "create", "cronjob", "nightly", "--image=busybox", "--schedule=0 3 * * *")
	k.run(t, "rollout", "status", "deployment/web", "--timeout=2m")
	stdout, stderr, code := coppice(t, "audit", "--kubeconfig", p.kubeconfig)
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "0 errors, 0 warnings in ") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
}

// TestPlantedFaultsAreFoundAndRepaired plants faults on a server without a collector, and repairs the repairable ones.
func TestPlantedFaultsAreFoundAndRepaired(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=", noNodes)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "shop")
	k.run(t, "create", "namespace", "other")
	k.run(t, "create", "configmap", "-n", "shop", "owner")
	k.run(t, "create", "configmap", "-n", "other", "far")
	kept := ownerOf("v1", "ConfigMap", "owner", uidOf(t, k, "shop", "configmap/owner"), false)
	gone := ownerOf("v1", "ConfigMap", "gone", "00000000-0000-0000-0000-000000000000", false)
	far := ownerOf("v1", "ConfigMap", "far", uidOf(t, k, "other", "configmap/far"), false)
	k.apply(t, "shop", configMap("mixed", gone+kept+far)+configMap("garbage", gone)+
		configMap("ahead", ownerOf("v9", "ConfigMap", "owner", uidOf(t, k, "shop", "configmap/owner"), false)))

	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := coppice(t, append([]string{"audit", "--kubeconfig", p.kubeconfig, "-n", "shop"}, args...)...)
		if code != want {
			t.Errorf("%q: exit code %d, want %d: %s\n%s", args, code, want, stderr, stdout)
		}
		return stdout, stderr
	}
	codes := func(text string) (found []string) {
		t.Helper()
		var report audit.Report
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			found = append(found, string(f.Code)+" "+f.Object.Name)
		}
		return found
	}
	want := []string{"owner-absent garbage", "owner-absent mixed", "owner-in-other-namespace mixed", "owner-version-not-served ahead"}
	eventually.Agrees(t, func() string { // an absence counts once the object is older than a second
		out, _ := run(3, "-o", "json")
		return cmp.Diff(want, codes(out))
	})

	const owners = "{.metadata.ownerReferences[*].name}"
	if _, stderr := run(1, "--fix"); !strings.Contains(stderr, "remove from configmaps/mixed in namespace shop") || !strings.Contains(stderr, "not confirmed") {
		t.Errorf("not confirmed: %s", stderr)
	}
	if got := k.get(t, "shop", "configmap/mixed", owners); got != "gone owner far" {
		t.Errorf("not confirmed, and the owners are %q", got)
	}
	if _, stderr := run(3, "--fix", "--yes"); !strings.Contains(stderr, "1 of 1 objects repaired") {
		t.Errorf("repaired: %s", stderr)
	}
	if got := k.get(t, "shop", "configmap/mixed", owners); got != "owner" {
		t.Errorf("repaired, and the owners are %q", got)
	}

	baseline := filepath.Join(t.TempDir(), "known.yaml")
	run(0, "--write-baseline", baseline)
	out, _ := run(0, "--baseline", baseline, "-o", "json")
	if got := codes(out); len(got) > 0 {
		t.Errorf("beyond the baseline: %q", got)
	}
}
