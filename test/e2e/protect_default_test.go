package e2e

import (
	"strings"
	"testing"
)

// TestDefaultModeOfDefinitions: definitions stay while they have instances, without a label; commands know why, and lift it for one.
func TestDefaultModeOfDefinitions(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--protect", "crds=unused")
	k := ourKubectl(p)
	const definition = "customresourcedefinitions.apiextensions.k8s.io/widgets.acme.io"
	k.apply(t, "default", `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.acme.io}, spec: {group: acme.io, scope: Namespaced,
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`)
	k.run(t, "wait", "--for=condition=Established", "crd/widgets.acme.io")
	k.apply(t, "default", "{apiVersion: acme.io/v1, kind: Widget, metadata: {name: first}}")
	const why = "protected by default, as if it had the label coppice.dev/protect=unused: it is in use by Widget.acme.io default/first"
	for _, test := range []struct {
		line, want string // on stdout or stderr
		code       int
	}{
		{"protect list", "*          " + strings.TrimSuffix(definition, "/widgets.acme.io") + "  unused (default)", 0},
		{"protect list -o json", `"mode": "unused"`, 0},
		{"preview delete crd/widgets.acme.io", why, 4},
		{"kubectl delete crd widgets.acme.io", why, 1},
		{"unprotect crd/widgets.acme.io", definition + " no longer protected, although its resource has a default mode", 0},
		{"unprotect crd/widgets.acme.io", definition + " is not protected", 0},
		{"kubectl delete crd widgets.acme.io --dry-run=server", "deleted", 0},
		{"protect crd/widgets.acme.io --mode=unused", definition + " protected: unused", 0},
		{"kubectl delete crd widgets.acme.io", "protected by its label coppice.dev/protect=unused", 1},
		{"kubectl label crd widgets.acme.io coppice.dev/protect-", "unlabeled", 0},
		{"kubectl delete widget first", "deleted", 0},
		{"kubectl delete crd widgets.acme.io", "deleted", 0},
	} {
		out, stderr, code := tool(t, p, "default", strings.Fields(test.line)...)
		if code != test.code || !strings.Contains(out+stderr, test.want) {
			t.Errorf("%s: exit code %d\n%s%s\nwant %d, %s", test.line, code, out, stderr, test.code, test.want)
		}
	}
}
