package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// asked is a webhook that nobody serves, at a URL, so that only the server knows.
const asked = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: asked.example.com}
webhooks:
- name: url.asked.example.com
  clientConfig: {url: 'https://127.0.0.1:1/none'}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {asked: here}}
  objectSelector: {matchLabels: {hook: url}}
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, name: viewer}]
`

// With --ask-server, the preview has the server's answer to a dry run of each request, also about what cannot be foreseen,
// and about rights. Nothing is deleted.
func TestPreviewAsksTheServer(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	const namespace = "asked"
	k.run(t, "create", "namespace", namespace)
	k.run(t, "label", "namespace", namespace, "asked=here")
	k.apply(t, namespace, asked)
	t.Cleanup(func() {
		k.run(t, "delete", "validatingwebhookconfiguration", "asked.example.com")
		k.run(t, "delete", "namespace", namespace)
	})
	for _, name := range []string{"free", "hooked"} {
		k.run(t, "create", "-n", namespace, "configmap", name)
	}
	k.run(t, "label", "-n", namespace, "configmap", "hooked", "hook=url")
	eventually.Agrees(t, func() string { // once the webhook is called
		if _, errs, err := k.try(t, "", "delete", "-n", namespace, "configmap", "hooked", "--dry-run=server"); err == nil || !strings.Contains(errs, "failed calling webhook") {
			return "the webhook is not called: " + errs
		}
		return ""
	})
	for _, test := range []struct {
		target string
		as     string
		code   int
		words  string
	}{
		{"configmap/free", "", 0, "; the server accepts the request"},
		{"configmap/hooked", "", 4, `; the server refuses the request: failed calling webhook "url.asked.example.com"`},
		{"configmap/free", "viewer", 4, `; the server refuses the request: User "viewer" cannot delete resource "configmaps"`},
	} {
		for _, address := range []string{"", "none"} {
			args := []string{"preview", "delete", "--kubeconfig", p.kubeconfig, "-n", namespace, test.target, "--address", address, "--ask-server", "--as", test.as}
			out, errs, code := coppice(t, args...)
			if code != test.code || !strings.Contains(out, test.words) {
				t.Errorf("%q: exit code %d, want %d and %q\n%s%s", args, code, test.code, test.words, out, errs)
			}
			out, errs, _ = coppice(t, append(args, "-o", "json")...)
			var report preview.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%s%s: %v", out, errs, err)
			}
			isAnswered := slices.ContainsFunc(report.Objects, func(o preview.ObjectReport) bool { return o.Answer != nil && o.Answer.Accepted == (test.code == 0) })
			if !isAnswered || (report.Refused > 0) != (test.code == 4) || report.Undecided > 0 && test.code == 0 {
				t.Errorf("%q: %d refused, %d undecided, and the answers in\n%s", args, report.Refused, report.Undecided, out)
			}
		}
	}
	k.get(t, namespace, "configmap/free", "{.metadata.name}") // it is there
}
