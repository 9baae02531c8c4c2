package builtin

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
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

func TestRowsAreComplete(t *testing.T) {
	schemes := NewSchemes()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		if resource.ValidateName == nil {
			t.Error("no ValidateName")
		}
		if resource.Singular != strings.ToLower(resource.Kind) {
			t.Errorf("Singular = %q", resource.Singular)
		}
		if resource.Deletion.Resource != resource.GroupResource() {
			t.Errorf("Deletion.Resource = %v", resource.Deletion.Resource)
		}
		for want, obj := range map[string]runtime.Object{resource.Kind: resource.New(), resource.Kind + "List": resource.NewList()} {
			got, _, err := schemes.External.ObjectKinds(obj)
			if err != nil || len(got) != 1 || got[0] != resource.GroupVersion.WithKind(want) {
				t.Errorf("%T is registered as %v (%v), want %v", obj, got, err, resource.GroupVersion.WithKind(want))
			}
			hub, _, err := schemes.Hub.ObjectKinds(obj)
			if err != nil || len(hub) < 2 || hub[0] != resource.GroupVersion.WithKind(want) || hub[1].Version != runtime.APIVersionInternal {
				t.Errorf("%T is registered in the hub as %v (%v)", obj, hub, err)
			}
		}
		for _, label := range append(resource.FieldLabels(), "metadata.name", "metadata.namespace") {
			if _, _, err := schemes.Hub.ConvertFieldLabel(resource.GVK(), label, "x"); err != nil {
				t.Errorf("field selector: %v", err)
			}
		}
		if _, _, err := schemes.Hub.ConvertFieldLabel(resource.GVK(), "spec.nonsense", "x"); err == nil {
			t.Error("a field selector by spec.nonsense is accepted")
		}
		for _, label := range resource.Strategy.IndexedFields {
			if !slices.Contains(resource.FieldLabels(), label) {
				t.Errorf("indexed by %s, which is not a field label", label)
			}
		}
	})
}

func TestEachResourceHasColumns(t *testing.T) {
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		obj := resource.New()
		metaOf(obj).SetName("x")
		printed, err := table.Convertor{Columns: resource.Columns, Now: testNow}.ConvertToTable(t.Context(), obj, nil)
		if err != nil {
			t.Fatal(err)
		}
		cells := printed.Rows[0].Cells
		if len(cells) != len(printed.ColumnDefinitions) {
			t.Fatalf("%d cells in %d columns", len(cells), len(printed.ColumnDefinitions))
		}
		names := 0
		for i, column := range printed.ColumnDefinitions {
			if column.Name == "" || column.Description == "" {
				t.Errorf("column %d: name %q, description %q", i, column.Name, column.Description)
			}
			if column.Format == "name" {
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
		// k8s.io/apiserver copies tables, and panics on a cell whose type JSON does not have.
		printed.DeepCopy()
	})
}

func TestTableOfAList(t *testing.T) {
	resource := rowFor(t, "configmaps")
	convertor := table.Convertor{Columns: resource.Columns, Now: testNow}
	schemes := NewSchemes()
	_, a := decode(t, schemes, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: b}}")
	list := resource.NewList()
	if err := meta.SetList(list, []runtime.Object{a}); err != nil {
		t.Fatal(err)
	}
	l := list.(metav1.ListInterface)
	l.SetResourceVersion("5")
	l.SetContinue("next")
	remaining := int64(3)
	l.SetRemainingItemCount(&remaining)

	printed, err := convertor.ConvertToTable(t.Context(), list, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &metav1.Table{
		ListMeta: metav1.ListMeta{ResourceVersion: "5", Continue: "next", RemainingItemCount: &remaining},
		Rows:     []metav1.TableRow{{Cells: []any{"a", int64(1), "<unknown>"}}},
	}
	if len(printed.Rows) == 1 {
		if printed.Rows[0].Object.Object == nil {
			t.Error("the row does not hold its object")
		}
		printed.Rows[0].Object = runtime.RawExtension{}
	}
	if diff := cmp.Diff(want, printed); diff != "" {
		t.Error(diff)
	}
}

// TestNamesAreUnique: kubectl accepts any name of a resource.
func TestNamesAreUnique(t *testing.T) {
	taken := map[string]string{}
	for _, resource := range Resources() {
		own := map[string]bool{}
		for _, name := range append([]string{resource.Plural, resource.Singular}, resource.ShortNames...) {
			if own[name] {
				continue // endpoints is its own singular
			}
			own[name] = true
			if other, ok := taken[name]; ok {
				t.Errorf("%q names %s and %s", name, other, resource.GroupResource())
			}
			taken[name] = resource.GroupResource().String()
		}
	}
}

// TestEndpointsAreServed lists the served endpoints.
func TestEndpointsAreServed(t *testing.T) {
	want := map[string][]string{
		"": {
			"configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/finalize", "namespaces/status", "nodes", "nodes/status",
			"persistentvolumeclaims", "persistentvolumeclaims/status", "persistentvolumes", "persistentvolumes/status",
			"pods", "pods/binding", "pods/ephemeralcontainers", "pods/resize", "pods/status", "podtemplates",
			"replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status",
			"resourcequotas", "resourcequotas/status", "secrets", "serviceaccounts", "services", "services/status",
		},
		"apps": {
			"controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"replicasets", "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status",
		},
		"extensions": {
			"daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"replicasets", "replicasets/scale", "replicasets/status",
		},
		"apiregistration.k8s.io": {"apiservices", "apiservices/status"},

		"batch":       {"cronjobs", "cronjobs/status", "jobs", "jobs/status"},
		"autoscaling": {"horizontalpodautoscalers", "horizontalpodautoscalers/status"},
		"certificates.k8s.io": {
			"certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status",
			"clustertrustbundles", "podcertificaterequests", "podcertificaterequests/status",
		},
		"coordination.k8s.io":       {"leases"},
		"rbac.authorization.k8s.io": {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
		"events.k8s.io":             {"events"},
		"networking.k8s.io": {
			"ingressclasses", "ingresses", "ingresses/status", "ipaddresses", "networkpolicies", "servicecidrs", "servicecidrs/status",
		},
		"node.k8s.io":      {"runtimeclasses"},
		"discovery.k8s.io": {"endpointslices"},
		"flowcontrol.apiserver.k8s.io": {
			"flowschemas", "flowschemas/status", "prioritylevelconfigurations", "prioritylevelconfigurations/status",
		},
		"policy": {"poddisruptionbudgets", "poddisruptionbudgets/status"},
		"storage.k8s.io": {
			"csidrivers", "csinodes", "csinodes/status", "csistoragecapacities", "storageclasses",
			"volumeattachments", "volumeattachments/status", "volumeattributesclasses",
		},
		"resource.k8s.io": {
			"deviceclasses", "devicetaintrules", "devicetaintrules/status", "resourceclaims", "resourceclaims/status", "resourceclaimtemplates", "resourceslices",
		},
		"scheduling.k8s.io":       {"priorityclasses"},
		"storagemigration.k8s.io": {"storageversionmigrations", "storageversionmigrations/status"},
		"admissionregistration.k8s.io": {
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicies/status",
			"validatingadmissionpolicybindings", "validatingwebhookconfigurations",
		},
	}
	groups, err := APIGroups(NewSchemes(), fakeConfig(newFakeStorage(), fakeDeleter{}), core.DefaultServiceRanges())
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

// TestServedVerbsFollowFromTheStorages checks the served verbs, which follow from the interfaces of the storages.
func TestServedVerbsFollowFromTheStorages(t *testing.T) {
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		storages, err := registry.NewStorages(resource, NewSchemes().Hub, fakeConfig(newFakeStorage(), fakeDeleter{}))
		if err != nil {
			t.Fatal(err)
		}
		main := storages[resource.Plural]
		if _, ok := main.(rest.CollectionDeleter); ok == resource.NoDeleteCollection {
			t.Errorf("deletes collections: %t", ok)
		}
		_, deletes := main.(rest.GracefulDeleter)
		_, patches := main.(rest.Patcher)
		_, creates := main.(rest.Creater)
		_, lists := main.(rest.Lister)
		_, watches := main.(rest.Watcher)
		_, singular := main.(rest.SingularNameProvider)
		if !deletes || !patches || !creates || !lists || !watches || !singular {
			t.Errorf("%T: delete %t, patch %t, create %t, list %t, watch %t, singular %t", main, deletes, patches, creates, lists, watches, singular)
		}
		if status, ok := storages[resource.Plural+"/status"]; ok {
			if _, ok := status.(rest.GracefulDeleter); ok {
				t.Error("/status can delete")
			}
			if _, ok := status.(rest.Patcher); !ok {
				t.Error("/status cannot be patched")
			}
		}
	})
}

// TestOpenAPIDefinitions checks that every kind has a definition, and every type to which a definition refers.
func TestOpenAPIDefinitions(t *testing.T) {
	definitions := openapi.GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef(path) })
	for name, definition := range definitions {
		for _, dependency := range definition.Dependencies {
			if _, ok := definitions[dependency]; !ok {
				t.Errorf("%s refers to %s, which is not defined", name, dependency)
			}
		}
	}
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		served := []runtime.Object{resource.New(), resource.NewList()}
		for _, p := range resource.Peers {
			served = append(served, p.New(), p.NewList())
		}
		for _, obj := range served {
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
