package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestLargeDeletionsAreConfirmed: on a control plane with limits, kubectl cannot delete what is large; who may confirm
// deletions deletes it as previewed.
func TestLargeDeletionsAreConfirmed(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--nodes=1", "--confirm-deletions", "more-than=5; kinds=namespaces")
	k := ourKubectl(p)
	const namespace = "shop"
	k.run(t, "create", "namespace", namespace)
	k.apply(t, namespace, manyConfigMaps(6))
	k.apply(t, namespace, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {app: web}}, spec: {replicas: 8, selector: {matchLabels: {app: web}},
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: x}]}}}}`)
	k.run(t, "rollout", "status", "deployment/web", "-n", namespace, "--timeout=3m")
	k.run(t, "create", "clusterrole", "deleter", "--verb=get,list,patch,update,delete,deletecollection", "--resource=*.*")
	k.run(t, "create", "clusterrolebinding", "deleter", "--clusterrole=deleter", "--user=dora")

	const other = "{apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {app: web}}}" // all that is left of a release
	refused := func(says string, args ...string) {
		t.Helper()
		if _, stderr, err := k.try(t, other, args...); err == nil || !strings.Contains(stderr, says) {
			t.Errorf("%q: %v: %s, want %q", args, err, stderr, says)
		}
	}
	refused("unconfirmed: 10 objects would be deleted, and more than 5 need a confirmation; to see them, and to confirm: coppice preview delete deployments.apps/web -n shop",
		"delete", "deployment", "web", "-n", namespace)
	refused("and namespaces in any number", "delete", "namespace", namespace)
	refused("unconfirmed: ", "delete", "--raw", "/api/v1/namespaces/shop/configmaps?labelSelector=many%3Dyes")
	refused("unconfirmed: ", "delete", "deployment", "web", "-n", namespace, "--as=dora")
	refused("unconfirmed: ", "apply", "-n", namespace, "-f", "-", "--prune", "-l", "app=web")
	k.run(t, "delete", "configmap", "many-0", "-n", namespace) // few

	if _, stderr, code := deleteAsPreviewed(t, p, "deployment/web", "--as", "dora"); code != 1 ||
		!strings.Contains(stderr, `user "dora" may not confirm deletions of deployments.apps`) {
		t.Errorf("dora: exit code %d: %s", code, stderr)
	}
	for _, whole := range []struct{ object, says string }{
		{"deployment/web", "Deployment.apps shop/web: gone"}, {"namespace/shop", "Namespace shop: gone"},
	} {
		out, stderr, code := deleteAsPreviewed(t, p, whole.object, "--wait", "--timeout", "3m")
		if code != 0 || !strings.Contains(out, whole.says) {
			t.Errorf("%s: exit code %d: %s%s", whole.object, code, out, stderr)
		}
	}
}

// deleteAsPreviewed previews and deletes an object, again while controllers still change something between the two.
func deleteAsPreviewed(t *testing.T, p *plane, object string, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	eventually.Agrees(t, func() string {
		stdout, stderr, code = tool(t, p, "shop", append([]string{"delete", object, "--confirm", previewed(t, p, "shop", object)}, flags...)...)
		if strings.Contains(stderr, "has changed since") {
			return stderr
		}
		return ""
	})
	return stdout, stderr, code
}

// previewed returns the digest of a preview.
func previewed(t *testing.T, p *plane, namespace, object string) string {
	t.Helper()
	out, stderr, code := tool(t, p, namespace, "preview", "delete", object, "-o", "json")
	var preview struct{ Digest string }
	if err := json.Unmarshal([]byte(out), &preview); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, stderr)
	}
	return preview.Digest
}

func manyConfigMaps(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: many-%d, labels: {many: 'yes'}}}", i))
	}
	return strings.Join(all, "\n---\n")
}
