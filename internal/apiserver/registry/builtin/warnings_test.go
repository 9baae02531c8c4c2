package builtin

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// warnedKinds are the kinds, and their subresources, for which kube-apiserver has warnings of its own.
var warnedKinds = []string{
	"CSIDriver", "CSIStorageCapacity", "CronJob", "DaemonSet", "Deployment", "EndpointSlice", "Endpoints",
	"Ingress", "Ingress/status", "Job", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	"MutatingWebhookConfiguration", "NetworkPolicy", "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod",
	"Pod/status", "PodTemplate", "ReplicaSet", "ReplicationController", "ResourceQuota", "ResourceSlice",
	"RuntimeClass", "Secret", "Service", "Service/status", "ServiceAccount", "StatefulSet", "StorageClass",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicy/status", "ValidatingAdmissionPolicyBinding",
	"ValidatingWebhookConfiguration",
}

// TestWarnings plays testdata/warnings: the warnings for a client that creates an object, or that replaces the first
// object with the second one. endpoint=status: on that subresource. The files have all kinds with warnings.
//
// go test -run TestWarnings ./internal/apiserver/registry/builtin -rewrite rewrites the outcomes.
func TestWarnings(t *testing.T) {
	schemes := NewSchemes()
	heard := map[string]bool{}
	datadriven.Walk(t, "testdata/warnings", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			endpoint := "main"
			if d.HasArg("endpoint") {
				d.ScanArgs(t, "endpoint", &endpoint)
			}
			kind, all, err := warned(t, schemes, endpoint, documents(d.Input))
			switch {
			case err != nil:
				return causes(err)
			case len(all) == 0:
				return "nothing\n"
			}
			heard[strings.TrimSuffix(kind+"/"+endpoint, "/main")] = true
			return strings.Join(all, "\n") + "\n"
		})
	})
	if diff := cmp.Diff(warnedKinds, slices.Sorted(maps.Keys(heard))); diff != "" {
		t.Errorf("kinds with warnings (-want +got):\n%s", diff)
	}
}

// warned returns the warnings about a request that succeeds, and the kind of its object.
func warned(t *testing.T, schemes registry.Schemes, endpoint string, docs []string) (kind string, all []string, err error) {
	t.Helper()
	if len(docs) == 1 {
		resource, obj, err := create(t, schemes, docs[0])
		if err != nil {
			return "", nil, err
		}
		return resource.Kind, mainREST(t, resource, schemes).CreateStrategy.WarningsOnCreate(requestContext(resource), obj), nil
	}
	resource, old, obj := replaced(t, schemes, docs)
	s := strategyOf(t, resource, schemes, endpoint)
	if err := rest.BeforeUpdate(s, requestContext(resource), obj, old); err != nil {
		return "", nil, err
	}
	return resource.Kind, s.WarningsOnUpdate(requestContext(resource), obj, old), nil
}

// TestSubresourcesWarnOfTheirPartOnly checks that a subresource does not warn about parts that only the main endpoint
// changes.
func TestSubresourcesWarnOfTheirPartOnly(t *testing.T) {
	schemes := NewSchemes()
	const stored = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nspec: {externalID: a}\n"
	for endpoint, want := range map[string]int{"main": 1, "status": 0} {
		if _, all, err := warned(t, schemes, endpoint, []string{stored, stored}); err != nil || len(all) != want {
			t.Errorf("%s: %q %v", endpoint, all, err)
		}
	}
}
