package registry

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
)

// eachRow runs a test for every row.
func eachRow(t *testing.T, test func(t *testing.T, k Kind)) {
	t.Helper()
	for _, k := range Table() {
		t.Run(k.GroupResource().String(), func(t *testing.T) { test(t, k) })
	}
}

func TestRowsAreComplete(t *testing.T) {
	schemes := NewSchemes()
	eachRow(t, func(t *testing.T, k Kind) {
		if k.Why == "" || !strings.HasSuffix(k.Why, ".") {
			t.Errorf("Why = %q, want a sentence", k.Why)
		}
		if k.Name == nil {
			t.Error("no rule for names")
		}
		if k.Singular != strings.ToLower(k.Kind) {
			t.Errorf("Singular = %q", k.Singular)
		}
		if k.Deletion.Resource != k.GroupResource() {
			t.Errorf("Deletion.Resource = %v", k.Deletion.Resource)
		}
		for want, obj := range map[string]runtime.Object{k.Kind: k.New(), k.Kind + "List": k.NewList()} {
			got, _, err := schemes.External.ObjectKinds(obj)
			if err != nil || len(got) != 1 || got[0] != k.GroupVersion.WithKind(want) {
				t.Errorf("%T is registered as %v (%v), want %v", obj, got, err, k.GroupVersion.WithKind(want))
			}
			hub, _, err := schemes.Hub.ObjectKinds(obj)
			if err != nil || len(hub) < 2 || hub[0] != k.GroupVersion.WithKind(want) || hub[1].Version != runtime.APIVersionInternal {
				t.Errorf("%T is registered in the hub as %v (%v)", obj, hub, err)
			}
		}
		for _, label := range append(k.FieldLabels(), "metadata.name", "metadata.namespace") {
			if _, _, err := schemes.Hub.ConvertFieldLabel(k.GVK(), label, "x"); err != nil {
				t.Errorf("field selector: %v", err)
			}
		}
		if _, _, err := schemes.Hub.ConvertFieldLabel(k.GVK(), "spec.nonsense", "x"); err == nil {
			t.Error("a field selector by spec.nonsense is accepted")
		}
		for _, label := range k.behaviour.indexed {
			if !slices.Contains(k.FieldLabels(), label) {
				t.Errorf("indexed by %s, which is not a field label", label)
			}
		}
	})
}

func TestColumns(t *testing.T) {
	eachRow(t, func(t *testing.T, k Kind) {
		obj := k.New()
		metaOf(obj).SetName("x")
		table, err := tableConvertor{k.columns, testNow}.ConvertToTable(t.Context(), obj, nil)
		if err != nil {
			t.Fatal(err)
		}
		cells := table.Rows[0].Cells
		if len(cells) != len(table.ColumnDefinitions) {
			t.Fatalf("%d cells in %d columns", len(cells), len(table.ColumnDefinitions))
		}
		names := 0
		for i, column := range table.ColumnDefinitions {
			if column.Name == "" || column.Description == "" {
				t.Errorf("column %d: name %q, description %q", i, column.Name, column.Description)
			}
			if column.Format == nameFormat {
				names++
			}
			_, isNumber := cells[i].(int64)
			_, isText := cells[i].(string)
			if isNumber != (column.Type == "integer") || isText != (column.Type == "string") {
				t.Errorf("column %s of type %s holds a %T", column.Name, column.Type, cells[i])
			}
		}
		if names != 1 {
			t.Errorf("%d columns are the name", names)
		}
		// The library copies tables, and panics on a cell that JSON does not have.
		table.DeepCopy()
	})
}

func TestTableOfAList(t *testing.T) {
	k := rowFor(t, "configmaps")
	convertor := tableConvertor{k.columns, testNow}
	schemes := NewSchemes()
	_, a := decode(t, schemes, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b}}")
	list := k.NewList()
	if err := meta.SetList(list, []runtime.Object{a}); err != nil {
		t.Fatal(err)
	}
	l := list.(metav1.ListInterface)
	l.SetResourceVersion("5")
	l.SetContinue("next")
	remaining := int64(3)
	l.SetRemainingItemCount(&remaining)

	table, err := convertor.ConvertToTable(t.Context(), list, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &metav1.Table{
		ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "next", RemainingItemCount: &remaining},
		Rows:     []metav1.TableRow{{Cells: []any{"a", int64(1), "<unknown>"}}},
	}
	if len(table.Rows) == 1 {
		if table.Rows[0].Object.Object == nil {
			t.Error("the row does not hold its object")
		}
		table.Rows[0].Object = runtime.RawExtension{}
	}
	if diff := cmp.Diff(want, table); diff != "" {
		t.Error(diff)
	}
}

// TestNamesAreUnique: kubectl takes a resource by any of its names.
func TestNamesAreUnique(t *testing.T) {
	taken := map[string]string{}
	for _, k := range Table() {
		own := map[string]bool{}
		for _, name := range append([]string{k.Resource, k.Singular}, k.ShortNames...) {
			if own[name] {
				continue // endpoints is its own singular
			}
			own[name] = true
			if other, ok := taken[name]; ok {
				t.Errorf("%q names %s and %s", name, other, k.GroupResource())
			}
			taken[name] = k.GroupResource().String()
		}
	}
}

// TestEndpoints holds the table to what is to be served.
func TestEndpoints(t *testing.T) {
	want := map[string][]string{
		"": {
			"configmaps", "endpoints", "events", "namespaces", "namespaces/finalize", "namespaces/status", "nodes", "nodes/status",
			"persistentvolumeclaims", "persistentvolumeclaims/status", "persistentvolumes", "persistentvolumes/status",
			"pods", "pods/binding", "pods/status", "replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status",
			"secrets", "serviceaccounts", "services", "services/status",
		},
		"apps": {
			"controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"replicasets", "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status",
		},
		"extensions": {
			"daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"replicasets", "replicasets/scale", "replicasets/status",
		},
		"batch":                     {"cronjobs", "cronjobs/status", "jobs", "jobs/status"},
		"autoscaling":               {"horizontalpodautoscalers", "horizontalpodautoscalers/status"},
		"coordination.k8s.io":       {"leases"},
		"rbac.authorization.k8s.io": {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
		"networking.k8s.io":         {"ingressclasses", "ingresses", "ingresses/status", "networkpolicies"},
		"discovery.k8s.io":          {"endpointslices"},
		"flowcontrol.apiserver.k8s.io": {
			"flowschemas", "flowschemas/status", "prioritylevelconfigurations", "prioritylevelconfigurations/status",
		},
		"policy":            {"poddisruptionbudgets", "poddisruptionbudgets/status"},
		"storage.k8s.io":    {"storageclasses"},
		"scheduling.k8s.io": {"priorityclasses"},
		"admissionregistration.k8s.io": {
			"mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicies/status",
			"validatingadmissionpolicybindings", "validatingwebhookconfigurations",
		},
	}
	groups, err := Groups(NewSchemes(), memoryConfig(newMemory(), simpleDeleter{}))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, group := range groups {
		version := group.PrioritizedVersions[0]
		got[version.Group] = slices.Sorted(maps.Keys(group.VersionedResourcesStorageMap[version.Version]))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestVerbs: what discovery will say follows from the interfaces of the storages.
func TestVerbs(t *testing.T) {
	eachRow(t, func(t *testing.T, k Kind) {
		storages, err := Storages(k, NewSchemes().Hub, memoryConfig(newMemory(), simpleDeleter{}))
		if err != nil {
			t.Fatal(err)
		}
		main := storages[k.Resource]
		if _, ok := main.(rest.CollectionDeleter); ok == k.OneByOne {
			t.Errorf("deletes collections: %t", ok)
		}
		_, deletes := main.(rest.GracefulDeleter)
		_, patches := main.(rest.Patcher)
		_, creates := main.(rest.Creater)
		_, lists := main.(rest.Lister)
		_, watches := main.(rest.Watcher)
		_, tells := main.(rest.SingularNameProvider)
		if !deletes || !patches || !creates || !lists || !watches || !tells {
			t.Errorf("%T: delete %t, patch %t, create %t, list %t, watch %t, singular %t", main, deletes, patches, creates, lists, watches, tells)
		}
		if status, ok := storages[k.Resource+"/status"]; ok {
			if _, ok := status.(rest.GracefulDeleter); ok {
				t.Error("/status can delete")
			}
			if _, ok := status.(rest.Patcher); !ok {
				t.Error("/status cannot be patched")
			}
		}
	})
}

// TestOpenAPIDefinitions: every kind is described, and everything that the
// descriptions are made of.
func TestOpenAPIDefinitions(t *testing.T) {
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })
	for name, definition := range definitions {
		for _, dependency := range definition.Dependencies {
			if _, ok := definitions[dependency]; !ok {
				t.Errorf("%s refers to %s, which is not defined", name, dependency)
			}
		}
	}
	eachRow(t, func(t *testing.T, k Kind) {
		for _, obj := range []runtime.Object{k.New(), k.NewList()} {
			name := util.GetCanonicalTypeName(obj)
			if n, ok := obj.(util.OpenAPIModelNamer); ok {
				name = n.OpenAPIModelName()
			}
			if _, ok := definitions[name]; !ok {
				t.Errorf("%s is not defined", name)
			}
		}
	})
}
