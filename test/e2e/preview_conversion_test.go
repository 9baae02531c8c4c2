package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// convertedGadgets are custom resources with a conversion webhook that does not exist.
const convertedGadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.convert.example.com}
spec:
  group: convert.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: convert, name: nowhere}}}
`

const convertedGadget = `
apiVersion: convert.example.com/v1
kind: Gadget
metadata: {name: g}
`

// createGadget creates a namespace, the definition, and a gadget that is stored in version v1.
func createGadget(t *testing.T, k kubectl, namespace string) {
	t.Helper()
	k.run(t, "create", "namespace", namespace)
	k.apply(t, namespace, convertedGadgets)
	eventually.Agrees(t, func() string { // once the kind is served
		_, errs, _ := k.try(t, convertedGadget, "create", "-n", namespace, "-f", "-")
		if strings.Contains(errs, "AlreadyExists") {
			return ""
		}
		return errs
	})
}

// Objects that cannot be converted cannot be deleted, and hold their namespace, and their definition if it stores them
// in another version. The preview says so, and so it happens.
func TestPreviewOfObjectsThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", byHand, noNodes)
	k := ourKubectl(p)
	const namespace, definition = "convert", "crd/gadgets.convert.example.com"
	createGadget(t, k, namespace)
	const failed = "conversion webhook for convert.example.com/*, Kind=Gadget failed: its service convert/nowhere has no endpoints"
	previewed := func(target string, wanted int, words ...string) {
		t.Helper()
		var digests []string
		for _, address := range []string{"", "none"} {
			out, errs, code := coppice(t, "preview", "delete", "--kubeconfig", p.kubeconfig, "-n", namespace, target, "--address", address)
			if code != wanted || slices.ContainsFunc(words, func(words string) bool { return !strings.Contains(out, words) }) {
				t.Errorf("preview of %s with --address %q: exit code %d, want %d and %q\n%s%s", target, address, code, wanted, words, out, errs)
			}
			digests = append(digests, out[max(0, strings.Index(out, "Digest: ")):])
		}
		if digests[0] != digests[1] {
			t.Errorf("preview of %s: a collector predicts something else than the cluster", target)
		}
	}
	previewed("gadget/g", 4, "the request is refused: "+failed)
	previewed("namespace/"+namespace, 4, "Gadget.convert.example.com convert/g; refused to the namespace controller: "+failed, "Waiting: 1 Namespace")
	previewed(definition, 0, "Deleted: 1 Gadget.convert.example.com") // all are stored in the version in which it lists them
	if _, errs, err := k.try(t, "", "delete", "-n", namespace, "gadgets.v2.convert.example.com", "g"); err == nil || !strings.Contains(errs, "conversion webhook for") {
		t.Errorf("the DELETE: %v, %s", err, errs)
	}
	k.run(t, "patch", definition, "--type=json", "-p",
		`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	eventually.Agrees(t, func() string {
		if versions := k.get(t, "", definition, "{.status.storedVersions}"); versions != `["v1","v2"]` {
			return versions
		}
		return ""
	})
	previewed(definition, 4, "refused to the API server: conversion webhook for convert.example.com", "Waiting: 1 CustomResourceDefinition")
	k.run(t, "delete", definition, "--wait=false")
	eventually.Agrees(t, func() string {
		if reason := k.get(t, "", definition, `{.status.conditions[?(@.type=="Terminating")].reason}`); reason != "InstanceDeletionFailed" {
			return "the definition: " + reason
		}
		return ""
	})
}
