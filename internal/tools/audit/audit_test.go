package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// read is the time at which the clusters of these tests are read; their objects are older.
func read() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

// served are the resources of these tests.
func served() []*inventory.Resource {
	resource := func(group, version, name, kind string, namespaced bool) *inventory.Resource {
		return &inventory.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: name},
			Kind:                 kind, Namespaced: namespaced, Deletable: true,
		}
	}
	widgets := resource("example.com", "v2", "widgets", "Widget", true)
	widgets.Versions = []string{"v1", "v2"}
	return []*inventory.Resource{
		resource("", "v1", "configmaps", "ConfigMap", true),
		resource("", "v1", "namespaces", "Namespace", false),
		resource("", "v1", "nodes", "Node", false),
		resource("", "v1", "pods", "Pod", true),
		resource("apps", "v1", "deployments", "Deployment", true),
		resource("apps", "v1", "replicasets", "ReplicaSet", true),
		resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true),
		widgets,
	}
}

// cluster parses objects, one for each line:
//
//	UID RESOURCE [NAMESPACE/]NAME [owner=APIVERSION:KIND:NAME:UID[:c]] [label=KEY:VALUE] [finalizer=F] [deleting=AGO] [new]
//
// The namespaces default and other always exist, and a reference with :c has controller: true.
func cluster(t *testing.T, lines ...string) *inventory.Inventory {
	t.Helper()
	inv := &inventory.Inventory{Read: read(), Resources: served()}
	for _, line := range append([]string{"ns-default namespaces default", "ns-other namespaces other"}, lines...) {
		inv.Objects = append(inv.Objects, parse(t, inv.Resources, line))
	}
	inv.Index()
	return inv
}

func parse(t *testing.T, resources []*inventory.Resource, line string) *inventory.Object {
	t.Helper()
	words := strings.Fields(line)
	at := slices.IndexFunc(resources, func(r *inventory.Resource) bool { return r.Resource == words[1] })
	o := &inventory.Object{Resource: resources[at], Created: read().Add(-time.Hour)}
	o.UID, o.Kind, o.ResourceVersion = ownership.UID(words[0]), o.Resource.OwnerKind(), "7"
	if namespace, name, ok := strings.Cut(words[2], "/"); ok {
		o.Namespace, o.Name = namespace, name
	} else {
		o.Name = words[2]
	}
	deleting := false
	for _, word := range words[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "owner":
			o.Owners = append(o.Owners, parseOwner(strings.Split(value, ":")))
		case "label":
			label, text, _ := strings.Cut(value, ":")
			o.Labels = append(o.Labels, inventory.Label{Name: label, Value: text})
		case "finalizer":
			o.Finalizers = append(o.Finalizers, value)
		case "deleting":
			ago, err := time.ParseDuration(value)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			o.Due, deleting = read().Add(-ago).Unix(), true
		case "new":
			o.Created = read().Add(time.Second)
		default:
			t.Fatalf("%q: what is %q?", line, word)
		}
	}
	o.Phase = ownership.PhaseOf(deleting, o.Finalizers)
	return o
}

func parseOwner(parts []string) ownership.Reference {
	r := ownership.Reference{APIVersion: parts[0], Kind: parts[1], Name: parts[2], UID: ownership.UID(parts[3])}
	if len(parts) > 4 {
		r.Controller, r.BlockOwnerDeletion = ownership.True, ownership.True
	}
	return r
}

// brief returns findings as "code object: message".
func brief(r audit.Report) []string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s %s: %s", f.Code, f.Object, f.Message))
	}
	return lines
}

// healthy is a cluster without faults.
func healthy() []string {
	return []string{
		"node nodes n1",
		"d deployments default/web",
		"r replicasets default/web-1 owner=apps/v1:Deployment:web:d:c label=pod-template-hash:1",
		"p pods default/web-1-x owner=apps/v1:ReplicaSet:web-1:r:c label=pod-template-hash:1",
		"mirror pods default/static owner=v1:Node:n1:node:c",
		"w widgets default/w",
		"wc configmaps default/w owner=example.com/v1:Widget:w:w", // an older version that is served
		"helm configmaps default/h label=app.kubernetes.io/managed-by:Helm",
		"going pods default/going deleting=1m finalizer=example.com/f",
	}
}

func TestHealthyClusterHasNoFindings(t *testing.T) {
	t.Parallel()
	report := audit.Check(cluster(t, healthy()...), audit.Options{})
	if report.Found() || len(report.Findings) > 0 {
		t.Errorf("findings: %q, want none", brief(report))
	}
	if report.Objects != len(healthy())+2 {
		t.Errorf("%d objects were judged, want all", report.Objects)
	}
}

// fault is a fault in a cluster, with its findings.
type fault struct {
	name   string
	plant  []string
	unread []inventory.Unread
	want   []string
}

// ownersElsewhere returns faults of references to owners that do not exist, or not at these coordinates.
func ownersElsewhere() []fault {
	return []fault{
		{
			"owner absent",
			[]string{"x pods default/x owner=apps/v1:ReplicaSet:web-1-old:gone"},
			nil,
			[]string{"owner-absent pods/x: The owner ReplicaSet.apps web-1-old (gone) does not exist."},
		},
		{
			"owner of that name has another UID",
			[]string{"x pods default/x owner=apps/v1:ReplicaSet:web-1:gone"},
			nil,
			[]string{"owner-replaced pods/x: The owner ReplicaSet.apps web-1 has UID gone, and the object of that name has r."},
		},
		{
			"wrong namespace",
			[]string{"x pods other/x owner=apps/v1:ReplicaSet:web-1:r"},
			nil,
			[]string{"owner-in-other-namespace pods/x: The owner ReplicaSet.apps web-1 is in another namespace, default."},
		},
		{
			"wrong scope",
			[]string{"x nodes x owner=apps/v1:ReplicaSet:web-1:r"},
			nil,
			[]string{"owner-namespaced nodes/x: The owner ReplicaSet.apps web-1 is in namespace default, and a cluster-scoped object cannot have such an owner."},
		},
		{
			"wrong scope, owner absent",
			[]string{"x nodes x owner=apps/v1:ReplicaSet:web-1:gone"},
			nil,
			[]string{"owner-namespaced nodes/x: The owner ReplicaSet.apps web-1 is namespaced, and a cluster-scoped object cannot have such an owner."},
		},
		{
			"wrong kind",
			[]string{"x pods default/x owner=apps/v1:Deployment:web-1:r"},
			nil,
			[]string{"owner-kind-mismatch pods/x: The owner is named as Deployment.apps web-1, and the object with its UID is a ReplicaSet.apps."},
		},
		{
			"wrong group",
			[]string{"x pods default/x owner=v1:ReplicaSet:web-1:r"},
			nil,
			[]string{"owner-kind-mismatch pods/x: The owner is named as ReplicaSet web-1, and the object with its UID is a ReplicaSet.apps."},
		},
		{
			"wrong name",
			[]string{"x pods default/x owner=apps/v1:ReplicaSet:web-2:r"},
			nil,
			[]string{"owner-name-mismatch pods/x: The owner is named as ReplicaSet.apps web-2, and the object with its UID is called web-1."},
		},
	}
}

// ownersUnknown returns faults of references to owners that are not served, or were not read.
func ownersUnknown() []fault {
	return []fault{
		{
			"invalid apiVersion",
			[]string{"x pods default/x owner=apps/v1/beta:ReplicaSet:web-1:r"},
			nil,
			[]string{`owner-apiversion-invalid pods/x: The apiVersion "apps/v1/beta" of the owner ReplicaSet web-1 cannot be parsed.`},
		},
		{
			"kind not served",
			[]string{"x pods default/x owner=example.com/v1:Gadget:g:gone"},
			nil,
			[]string{"owner-kind-not-served pods/x: No API serves Gadget.example.com, the kind of the owner g."},
		},
		{
			"version not served",
			[]string{"x pods default/x owner=example.com/v3:Widget:w:w"},
			nil,
			[]string{"owner-version-not-served pods/x: Widget.example.com is not served as example.com/v3, only as v1, v2."},
		},
		{
			"group does not answer",
			[]string{"x pods default/x owner=example.org/v1:Gadget:g:gone"},
			[]inventory.Unread{{Resource: schema.GroupVersionResource{Group: "example.org", Version: "v1"}}},
			[]string{"owner-not-seen pods/x: The owner Gadget.example.org g is of a group that does not answer."},
		},
		{
			"kind cannot be listed",
			[]string{"x pods default/x owner=example.com/v1:Widget:v:gone"},
			[]inventory.Unread{{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}, Forbidden: true}},
			[]string{"owner-not-seen pods/x: The owner Widget.example.com v was not found, and not all objects of its kind could be read."},
		},
		{
			"created while the cluster was read",
			[]string{"x pods default/x owner=apps/v1:ReplicaSet:web-2:newer new"},
			nil,
			[]string{"owner-not-seen pods/x: The owner ReplicaSet.apps web-2 was not found, but the object was created while the cluster was read."},
		},
	}
}

// faultsOfObjects returns faults of objects, and of all references of an object together.
func faultsOfObjects() []fault {
	return []fault{
		{
			"duplicate",
			[]string{"x pods default/x owner=apps/v1:ReplicaSet:web-1:r owner=apps/v1:ReplicaSet:web-1:r"},
			nil,
			[]string{"duplicate-reference pods/x: ReplicaSet.apps web-1 is named more than once as an owner."},
		},
		{
			"several controllers",
			[]string{"x pods default/x owner=apps/v1:ReplicaSet:web-1:r:c owner=v1:Node:n1:node:c"},
			nil,
			[]string{"several-controllers pods/x: More than one owner is marked as the controller: ReplicaSet.apps web-1, Node n1."},
		},
		{
			"cycle",
			[]string{
				"x configmaps default/x owner=v1:ConfigMap:y:y", "y configmaps default/y owner=v1:ConfigMap:z:z",
				"z configmaps default/z owner=v1:ConfigMap:x:x", "below configmaps default/below owner=v1:ConfigMap:x:x",
			},
			nil,
			[]string{"owner-cycle configmaps/x: 3 objects own each other: ConfigMap z, ConfigMap y, ConfigMap x."},
		},
		{
			"owns itself",
			[]string{"x configmaps default/x owner=v1:ConfigMap:x:x"},
			nil,
			[]string{"owner-cycle configmaps/x: It is its own owner."},
		},
		{
			"namespace gone",
			[]string{"x configmaps removed/x"},
			nil,
			[]string{"namespace-absent configmaps/x: The namespace removed does not exist."},
		},
		{
			"namespaces cannot be listed",
			[]string{"x configmaps removed/x"},
			[]inventory.Unread{{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Forbidden: true}},
			nil,
		},
		{
			"terminating for long",
			[]string{"x configmaps default/x deleting=2h finalizer=example.com/f"},
			nil,
			[]string{"terminating-long configmaps/x: It should have been gone 2h0m0s ago, and has the finalizers example.com/f."},
		},
		{
			"pod without its ReplicaSet",
			[]string{"x pods default/x label=pod-template-hash:1"},
			nil,
			[]string{"looks-owned pods/x: It has the label pod-template-hash=1 of a controller, and no owner."},
		},
		{
			"EndpointSlice without its Service",
			[]string{
				"x endpointslices default/x label=endpointslice.kubernetes.io/managed-by:endpointslice-controller.k8s.io",
				"y endpointslices default/y label=endpointslice.kubernetes.io/managed-by:me",
				"z endpointslices default/z label=kubernetes.io/service-name:web",
			},
			nil,
			[]string{"looks-owned endpointslices.discovery.k8s.io/x: It has the label endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io of a controller, and no owner."},
		},
		{"others managed by the same have owners", []string{
			"x configmaps default/x label=app.kubernetes.io/managed-by:operator",
			"y configmaps default/y label=app.kubernetes.io/managed-by:operator owner=example.com/v2:Widget:w:w:c",
			"z configmaps other/z label=app.kubernetes.io/managed-by:operator",
		}, nil, []string{"looks-owned configmaps/x: It has no owner, unlike others of its kind and namespace that are managed by operator."}},
	}
}

// TestEachPlantedFaultIsFound plants one fault at a time in a healthy cluster.
func TestEachPlantedFaultIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range slices.Concat(ownersElsewhere(), ownersUnknown(), faultsOfObjects()) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inv := cluster(t, append(healthy(), test.plant...)...)
			inv.Unread = test.unread
			got := audit.Check(inv, audit.Options{})
			if diff := cmp.Diff(test.want, brief(got)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			for _, f := range got.Findings {
				if f.Suggestion == "" || f.Severity == "" {
					t.Errorf("%s has no suggestion or severity", f.Code)
				}
			}
			noteOnly := len(got.Findings) == 0 || got.Findings[0].Severity == audit.Note
			if got.Found() == noteOnly || len(got.Unread) != len(test.unread) {
				t.Errorf("found: %v, unread: %q", got.Found(), got.Unread)
			}
		})
	}
}

// The reasons why a namespace stays are in its conditions.
func TestFindingOfANamespaceHasItsConditions(t *testing.T) {
	t.Parallel()
	inv := cluster(t, "n namespaces n deleting=1h")
	inv.Namespaces = map[ownership.UID]*corev1.Namespace{"n": {Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
		{Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionFalse, Message: "all was deleted"},
		{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Message: "1 pod is left."},
	}}}}
	want := []string{"terminating-long namespaces/n: It should have been gone 1h0m0s ago, and has no finalizers; 1 pod is left."}
	if diff := cmp.Diff(want, brief(audit.Check(inv, audit.Options{}))); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if report := audit.Check(inv, audit.Options{Long: 2 * time.Hour}); report.Found() {
		t.Errorf("findings: %q, want none so early", brief(report))
	}
}

// Only the objects of the namespace are checked, with all other objects as context.
func TestOnlyObjectsOfTheNamespaceAreChecked(t *testing.T) {
	t.Parallel()
	inv := cluster(t, append(healthy(), "x pods default/x owner=v1:ConfigMap:a:gone", "y pods other/y owner=apps/v1:ReplicaSet:web-1:r")...)
	report := audit.Check(inv, audit.Options{Namespace: "other"})
	if len(report.Findings) != 1 || report.Findings[0].Object.Name != "y" || report.Objects != 1 {
		t.Errorf("findings: %q of %d objects", brief(report), report.Objects)
	}
}
