package e2e

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// gadgets is a custom resource and an instance of it with a finalizer without a controller.
const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.explain.example.com}
spec:
  group: explain.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const gadget = `
apiVersion: explain.example.com/v1
kind: Gadget
metadata: {name: held, finalizers: [explain.example.com/hold]}
`

// TestStuckDeletionsAreExplained: stuck deletions are explained down to the finalizer without a controller, and complete
// after the last action that the explanation names.
func TestStuckDeletionsAreExplained(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "hanging")
	hold(t, k, "hanging", "leaf")
	k.run(t, "create", "-n", "hanging", "configmap", "root", "--from-literal=key=value")
	root := k.get(t, "hanging", "configmap/root", "{.metadata.uid}")
	k.run(t, "patch", "-n", "hanging", "configmap", "leaf", "--type=merge", "-p",
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"root","uid":"`+root+`","blockOwnerDeletion":true}]}}`)
	k.apply(t, "hanging", gadgets)
	k.run(t, "wait", "--for=condition=Established", "crd/gadgets.explain.example.com")
	k.apply(t, "hanging", gadget)

	k.run(t, "delete", "-n", "hanging", "configmap", "root", "--cascade=foreground", "--wait=false")
	k.run(t, "delete", "crd", "gadgets.explain.example.com", "--wait=false")
	k.run(t, "delete", "namespace", "hanging", "--wait=false")

	const ours, theirs = "example.com/hold", "explain.example.com/hold"
	var patches []string
	for _, test := range []struct {
		object     string
		finalizers []string // of the leaves that are stuck
	}{
		{"configmap/root", []string{ours}},
		{"crd/gadgets.explain.example.com", []string{theirs}},
		{"namespace/hanging", []string{ours, theirs}},
	} {
		eventually.Agrees(t, func() string { // once the controllers have nothing left to do
			x, stderr := explained(t, p, test.object)
			var stuck []string
			for _, leaf := range x.Leaves() {
				if leaf.State == explain.Stuck {
					stuck = append(stuck, leaf.Finalizer)
					patches = append(patches, leaf.Next[len(leaf.Next)-1].Command)
				}
			}
			slices.Sort(stuck)
			if x.State != explain.Stuck || !slices.Equal(slices.Compact(stuck), test.finalizers) {
				return stderr + "the leaves of " + test.object + " are " + strings.Join(stuck, ", ")
			}
			return ""
		})
	}
	listed, errs, code := coppice(t, "explain", "--all", "--kubeconfig", p.kubeconfig, "-n", "hanging", "-o", "json")
	var list struct{ Items []explain.Group }
	if err := json.Unmarshal([]byte(listed), &list); err != nil || code != 0 || len(list.Items) < 2 {
		t.Errorf("explain --all -n hanging: %v, exit code %d, %s%s", err, code, listed, errs)
	}
	for _, g := range list.Items {
		for _, o := range g.Objects {
			if o.Namespace != "hanging" && o.Name != "hanging" {
				t.Errorf("explain --all -n hanging has %s", o)
			}
		}
	}
	slices.Sort(patches)
	for _, patch := range slices.Compact(patches) {
		command := exec.Command("sh", "-c", strings.Replace(patch, "kubectl", strings.Join(k.command, " "), 1))
		command.Env = append(command.Environ(), "KUBECONFIG="+p.kubeconfig)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", patch, err, out)
		}
	}
	k.run(t, "wait", "--for=delete", "namespace/hanging", "crd/gadgets.explain.example.com", "--timeout=2m")
	for object, want := range map[string]string{
		"namespace/hanging":               "Namespace hanging: gone\n  deleted by ",
		"crd/gadgets.explain.example.com": "CustomResourceDefinition.apiextensions.k8s.io gadgets.explain.example.com: gone\n  deleted by ",
	} { // the stories of the collector have it
		out, err := exec.Command(binary, "explain", "--kubeconfig", p.kubeconfig, object).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("what is gone: %v, %s", err, out)
		}
	}
	out, err := exec.Command(binary, "explain", "--kubeconfig", p.kubeconfig, "namespace/never").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "namespaces/never does not exist, and the reason is unknown") {
		t.Errorf("what never was: %v, %s", err, out)
	}
}

// explained runs coppice explain.
func explained(t *testing.T, p *plane, object string) (x explain.Explanation, stderr string) {
	t.Helper()
	command := exec.Command(binary, "explain", "--kubeconfig", p.kubeconfig, "-n", "hanging", object, "-o", "json")
	var errs strings.Builder
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		return x, errs.String()
	}
	var list struct{ Items []explain.Explanation }
	if err := json.Unmarshal(out, &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v in\n%s", err, out)
	}
	return list.Items[0], errs.String()
}

// keeping is a policy that refuses to delete ConfigMaps with a label, in the namespace "refusing".
const keeping = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refusing}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: refusing}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps]}]
  validations: [{expression: "!has(oldObject.metadata.labels) || !('keep' in oldObject.metadata.labels)", message: it is kept}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refusing-all}
spec: {policyName: refusing, validationActions: [Deny]}
`

// R31: a dependent that a policy keeps is the reason why its owner is stuck; Events on both say so, and the owner goes
// once the policy is deleted.
func TestRefusedDeletionsAreExplained(t *testing.T) {
	t.Parallel()
	p := sharedPlane(t)
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "refusing")
	k.apply(t, "refusing", keeping)
	k.run(t, "create", "-n", "refusing", "configmap", "root")
	root := k.get(t, "refusing", "configmap/root", "{.metadata.uid}")
	k.apply(t, "refusing", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","labels":{"keep":"yes"},"ownerReferences":[`+
		`{"apiVersion":"v1","kind":"ConfigMap","name":"root","uid":"`+root+`","blockOwnerDeletion":true}]}}`)
	eventually.Agrees(t, func() string { // once the server has observed the policy
		out, _, err := k.try(t, "", "delete", "-n", "refusing", "configmap", "kept", "--dry-run=server")
		if err == nil {
			return "not refused: " + out
		}
		return ""
	})
	k.run(t, "delete", "-n", "refusing", "configmap", "root", "--cascade=foreground", "--wait=false")
	const refusal = "ValidatingAdmissionPolicy 'refusing' with binding 'refusing-all' denied request: it is kept"
	eventually.Agrees(t, func() string {
		out, _ := exec.Command(binary, "explain", "--kubeconfig", p.kubeconfig, "-n", "refusing", "configmap/root").CombinedOutput()
		events := k.run(t, "get", "events", "-n", "refusing", "--field-selector", "reason=GarbageCollectionRefused", "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(string(out), "ConfigMap refusing/root: stuck") || !strings.Contains(string(out), refusal) || strings.Count(events, refusal) != 2 {
			return string(out) + events
		}
		return ""
	})
	k.run(t, "delete", "validatingadmissionpolicy", "refusing")
	k.run(t, "wait", "-n", "refusing", "--for=delete", "configmap/root", "configmap/kept", "--timeout=2m")
	k.run(t, "delete", "validatingadmissionpolicybinding/refusing-all", "namespace/refusing", "--timeout=2m")
}
