package restriction

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// R28: no restricted identity can change the protection of objects that it creates or updates, on any
// endpoint.
func TestR28_RestrictedIdentitiesDoNotProtect(t *testing.T) {
	node := func(labels, annotations map[string]string) runtime.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "na", Labels: labels, Annotations: annotations}}
	}
	lease := func(labels map[string]string) runtime.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "na", Labels: labels}}
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{protection.Label: "always"}}, InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "na"},
	}
	protected := map[string]string{protection.Label: "always", "a": "b"}
	members := []string{user.NodesGroup}
	for name, test := range map[string]struct {
		user     string
		groups   []string
		resource string
		sub      string
		old, now runtime.Object
		want     bool
	}{
		"a node creates itself protected":    {"system:node:na", members, "nodes", "", nil, node(protected, nil), false},
		"a node protects itself":             {"system:node:na", members, "nodes", "", node(nil, nil), node(protected, nil), false},
		"a node weakens its protection":      {"system:node:na", members, "nodes", "", node(protected, nil), node(map[string]string{protection.Label: "cascading", "a": "b"}, nil), false},
		"a node lifts its protection":        {"system:node:na", members, "nodes", "", node(protected, nil), node(map[string]string{"a": "b"}, nil), false},
		"a node says what it outlives":       {"system:node:na", members, "nodes", "", node(protected, nil), node(protected, map[string]string{protection.Annotation: "[]"}), false},
		"a node is undone from another":      {"system:node:na", members, "nodes", "", node(nil, nil), node(nil, map[string]string{"coppice.dev/undone-from": "x"}), false},
		"a node updates its protected Node":  {"system:node:na", members, "nodes", "", node(protected, nil), node(map[string]string{protection.Label: "always", "a": "c"}, nil), true},
		"with its status":                    {"system:node:na", members, "nodes", "status", node(nil, nil), node(nil, map[string]string{protection.Annotation: "[]"}), false},
		"a node creates a protected Lease":   {"system:node:na", members, "leases", "", nil, lease(protected), false},
		"a node protects its Lease":          {"system:node:na", members, "leases", "", lease(nil), lease(protected), false},
		"a node creates a Lease":             {"system:node:na", members, "leases", "", nil, lease(nil), true},
		"a node creates a protected Event":   {"system:node:na", members, "events", "", nil, event, false},
		"the agents in the process do":       {bootstrappolicy.NodeAgent, nil, "nodes", "", node(nil, nil), node(protected, nil), false},
		"the collector's Events":             {bootstrappolicy.Collector, nil, "events", "", nil, event, false},
		"the scheduler's Events":             {bootstrappolicy.Scheduler, nil, "events", "", nil, event, false},
		"somebody who is not restricted may": {"ann", nil, "nodes", "", node(nil, nil), node(protected, nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			operation, group := admission.Update, ""
			if test.old == nil {
				operation = admission.Create
			}
			namespace := ""
			if test.resource == "leases" {
				group, namespace = coordinationv1.GroupName, corev1.NamespaceNodeLease
			}
			gvr := corev1.SchemeGroupVersion.WithResource(test.resource)
			gvr.Group = group
			a := admission.NewAttributesRecord(test.now, test.old, test.now.GetObjectKind().GroupVersionKind(), namespace, "na", gvr, test.sub,
				operation, nil, false, &user.DefaultInfo{Name: test.user, Groups: test.groups})
			err := NewAdmission(New(nil, nil)).Validate(t.Context(), a, nil)
			if (err == nil) != test.want {
				t.Errorf("%v", err)
			}
		})
	}
}
