package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// keepers are a policy that denies DELETEs of ConfigMaps with the label keep to everybody, and of those with the label
// bound to the collector; one that lets nobody remove owner references of those with the label child; and two webhooks, one without a service and one with a URL, each for objects with a label.
const keepers = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: keepers.example.com}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {keepers: here}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  variables: [{name: labels, expression: 'has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}'}]
  validations:
  - {expression: '!("keep" in variables.labels)', message: it is kept}
  - {expression: '!("bound" in variables.labels) || !request.userInfo.username.endsWith("collector")', message: it is bound}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: keepers.example.com}
spec: {policyName: keepers.example.com, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: children.example.com}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {keepers: here}}
    objectSelector: {matchLabels: {child: 'yes'}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}]
  validations:
  - {expression: '!has(oldObject.metadata.ownerReferences) || has(object.metadata.ownerReferences)', message: it stays a child}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: children.example.com}
spec: {policyName: children.example.com, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: keepers.example.com}
webhooks:
- name: dead.example.com
  clientConfig: {service: {namespace: keepers, name: nowhere}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {keepers: here}}
  objectSelector: {matchLabels: {hook: dead}}
  sideEffects: None
  admissionReviewVersions: [v1]
- name: url.example.com
  clientConfig: {url: 'https://127.0.0.1:1/none'}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {keepers: here}}
  objectSelector: {matchLabels: {hook: url}}
  sideEffects: None
  admissionReviewVersions: [v1]
`

// The preview names who refuses a deletion: a policy, a dead webhook or the server; or who decides about it. A collector
// answers as the command does that reads the cluster, and the refused requests are refused.
func TestPreviewNamesRefusals(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	const namespace = "keepers"
	k.run(t, "create", "namespace", namespace)
	k.run(t, "label", "namespace", namespace, "keepers=here")
	k.apply(t, namespace, keepers)
	t.Cleanup(func() {
		for _, kind := range []string{"validatingwebhookconfiguration", "validatingadmissionpolicybinding", "validatingadmissionpolicy"} {
			k.run(t, "delete", kind, "keepers.example.com")
		}
		k.run(t, "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "children.example.com")
		k.run(t, "delete", "namespace", namespace)
	})
	for name, label := range map[string]string{"free": "free=yes", "kept": "keep=yes", "bound": "bound=yes", "dead": "hook=dead", "url": "hook=url", "owner": "free=yes", "parent": "free=yes", "child": "child=yes"} {
		k.run(t, "create", "-n", namespace, "configmap", name)
		k.run(t, "label", "-n", namespace, "configmap", name, label)
	}
	for dependent, owner := range map[string]string{"bound": "owner", "child": "parent"} {
		k.run(t, "patch", "-n", namespace, "configmap", dependent, "--type=merge", "-p",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"`+owner+`","uid":"`+k.get(t, namespace, "configmap/"+owner, "{.metadata.uid}")+`"}]}}`)
	}

	eventually.Agrees(t, func() string { // once admission has the policy
		if _, errs, err := k.try(t, "", "delete", "-n", namespace, "configmap", "kept", "--dry-run=server"); err == nil || !strings.Contains(errs, "it is kept") {
			return "the policy is not in effect: " + errs
		}
		return ""
	})
	eventually.Agrees(t, func() string {
		if _, errs, err := k.try(t, "", "patch", "-n", namespace, "configmap", "child", "--type=merge", "-p", `{"metadata":{"ownerReferences":null}}`, "--dry-run=server"); err == nil || !strings.Contains(errs, "it stays a child") {
			return "the policy about children is not in effect: " + errs
		}
		return ""
	})
	for _, test := range []struct {
		target string
		code   int
		words  []string // of the output
		flags  []string
	}{
		{"configmap/free", 0, []string{"Deleted: 1 ConfigMap"}, nil},
		{"configmap/kept", 4, []string{"the request is refused", "ValidatingAdmissionPolicy 'keepers.example.com' with binding 'keepers.example.com' denied request: it is kept"}, nil},
		{"configmap/owner", 4, []string{"ConfigMap keepers/bound; refused to the garbage collector", "it is bound"}, nil},
		{
			"configmap/parent", 4,
			[]string{
				"ConfigMap keepers/child; its change is refused to the garbage collector: ValidatingAdmissionPolicy 'children.example.com'",
				"ConfigMap keepers/parent; waits for dependents that it is not detached from: ConfigMap keepers/child",
			},
			[]string{"--cascade=orphan"},
		},
		{"configmap/dead", 4, []string{`failed calling webhook "dead.example.com"`, "its service keepers/nowhere has no endpoints"}, nil},
		{"configmap/url", 5, []string{"decided by webhook url.example.com of ValidatingWebhookConfiguration keepers.example.com", "Deleted: 1 ConfigMap"}, nil},
		{"namespace/default", 4, []string{"this namespace may not be deleted"}, nil},
		{"priorityclass/system-node-critical", 4, []string{"this is a system priority class and cannot be deleted"}, nil},
	} {
		var digests []string
		for _, address := range []string{"", "none"} {
			args := []string{"preview", "delete", "--kubeconfig", p.kubeconfig, "-n", namespace, test.target, "--address", address}
			args = append(args, test.flags...)
			out, errs, code := coppice(t, args...)
			if code != test.code || slices.ContainsFunc(test.words, func(words string) bool { return !strings.Contains(out, words) }) {
				t.Errorf("preview of %s with --address %q: exit code %d, want %d and %q\n%s%s", test.target, address, code, test.code, test.words, out, errs)
			}
			out, _, _ = coppice(t, append(args, "-o", "json")...)
			var report preview.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			if (report.Refused > 0) != (code == 4) || (report.Undecided > 0) != (code == 5) {
				t.Errorf("preview of %s: %d refused, %d undecided, exit code %d", test.target, report.Refused, report.Undecided, code)
			}
			digests = append(digests, report.Digest)
		}
		if digests[0] != digests[1] {
			t.Errorf("preview of %s: a collector predicts something else than the cluster", test.target)
		}
		if _, errs, err := k.try(t, "", "delete", "-n", namespace, test.target, "--dry-run=server"); test.code == 4 && !strings.HasSuffix(test.target, "owner") && len(test.flags) == 0 && err == nil {
			t.Errorf("%s is deleted: %s", test.target, errs)
		}
	}
	k.run(t, "delete", "-n", namespace, "configmap", "parent", "--cascade=orphan", "--wait=false")
	eventually.Agrees(t, func() string {
		if out, errs, _ := coppice(t, "explain", "--kubeconfig", p.kubeconfig, "-n", namespace, "configmap/parent"); !strings.Contains(out, "it stays a child") {
			return out + errs
		}
		return ""
	})
}
