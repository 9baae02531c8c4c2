package inuse

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestR28_ServedByFieldManager: only fields that a program of that name has written are evidence.
func TestR28_ServedByFieldManager(t *testing.T) {
	const sets = `{"f:metadata":{"f:finalizers":{".":{},"v:\"acme.io/cleanup\"":{}}}}`
	secret, widget := schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Group: "acme.io", Kind: "Widget"}
	for name, test := range map[string]struct {
		kind       schema.GroupKind
		finalizers []string
		entry      metav1.ManagedFieldsEntry
		labels     map[string]string // of the workload "acme"
		want       string
	}{
		"its finalizer":         {secret, []string{"acme.io/cleanup"}, metav1.ManagedFieldsEntry{Manager: "acme", FieldsV1: metav1.NewFieldsV1(sets)}, nil, "finalizer acme.io/cleanup"},
		"removed":               {secret, []string{"acme.io/other"}, metav1.ManagedFieldsEntry{Manager: "acme", FieldsV1: metav1.NewFieldsV1(sets)}, nil, ""},
		"of another program":    {secret, []string{"acme.io/cleanup"}, metav1.ManagedFieldsEntry{Manager: "acme-webhook", FieldsV1: metav1.NewFieldsV1(sets)}, nil, ""},
		"by its label":          {secret, []string{"acme.io/cleanup"}, metav1.ManagedFieldsEntry{Manager: "acme-operator", FieldsV1: metav1.NewFieldsV1(sets)}, map[string]string{"app.kubernetes.io/name": "acme-operator"}, "finalizer acme.io/cleanup"},
		"a name of many":        {secret, []string{"acme.io/cleanup"}, metav1.ManagedFieldsEntry{Manager: "manager", FieldsV1: metav1.NewFieldsV1(sets)}, map[string]string{"app": "manager"}, ""},
		"a tool":                {secret, []string{"acme.io/cleanup"}, metav1.ManagedFieldsEntry{Manager: "helm", FieldsV1: metav1.NewFieldsV1(sets)}, map[string]string{"app": "helm"}, ""},
		"no name":               {secret, []string{"acme.io/cleanup"}, metav1.ManagedFieldsEntry{FieldsV1: metav1.NewFieldsV1(sets)}, nil, ""},
		"fields that are wrong": {secret, []string{"acme.io/cleanup"}, metav1.ManagedFieldsEntry{Manager: "acme", FieldsV1: metav1.NewFieldsV1("[]")}, nil, ""},
		"a status":              {widget, nil, metav1.ManagedFieldsEntry{Manager: "acme", Subresource: "status"}, nil, "status"},
		"a spec":                {widget, nil, metav1.ManagedFieldsEntry{Manager: "acme"}, nil, ""},
		"Kubernetes' own kind":  {schema.GroupKind{Group: "apps", Kind: "Deployment"}, nil, metav1.ManagedFieldsEntry{Manager: "acme", Subresource: "status"}, nil, ""},
	} {
		m := &metav1.ObjectMeta{Finalizers: test.finalizers, ManagedFields: []metav1.ManagedFieldsEntry{test.entry}}
		isWorkload := func(manager string) bool {
			return HasName("acme", manager, func(key string) string { return test.labels[key] })
		}
		if what, served := Served(test.kind, m, isWorkload); what != test.want || served != (test.want != "") {
			t.Errorf("%s: %q, %t, want %q", name, what, served, test.want)
		}
	}
}
