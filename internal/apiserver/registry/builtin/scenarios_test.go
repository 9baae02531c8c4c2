package builtin

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

// TestScenarios plays testdata/scenarios. The commands are
//
//	create      an object: the errors, or ok
//	stored      an object: what a creation stores, defaults and all
//	update      the object that is stored and the one that is sent: the errors, or
//	            ok and the generation. endpoint=status or endpoint=finalize: on that subresource
//	table       objects of one kind: what kubectl get shows. wide: with -o wide
//
// go test -run TestScenarios ./internal/apiserver/registry/builtin -rewrite rewrites the
// outcomes.
func TestScenarios(t *testing.T) {
	schemes := NewSchemes()
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "create":
				_, _, err := create(t, schemes, d.Input)
				return causes(err)
			case "stored":
				resource, obj, err := create(t, schemes, d.Input)
				if err != nil {
					return causes(err)
				}
				return encode(t, resource, obj)
			case "update":
				endpoint := "main"
				if d.HasArg("endpoint") {
					d.ScanArgs(t, "endpoint", &endpoint)
				}
				return update(t, schemes, endpoint, documents(d.Input))
			case "table":
				return tableText(t, schemes, documents(d.Input), d.HasArg("wide"))
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func create(t *testing.T, schemes registry.Schemes, text string) (registry.Resource, runtime.Object, error) {
	t.Helper()
	resource, obj := decode(t, schemes, text)
	newborn(obj)
	return resource, obj, rest.BeforeCreate(mainREST(t, resource, schemes).CreateStrategy, requestContext(resource), obj)
}

func update(t *testing.T, schemes registry.Schemes, endpoint string, docs []string) string {
	t.Helper()
	resource, old, obj := replaced(t, schemes, docs)
	s := strategyOf(t, resource, schemes, endpoint)
	before := encode(t, resource, old)
	if err := rest.BeforeUpdate(s, requestContext(resource), obj, old); err != nil {
		return causes(err)
	}
	if encode(t, resource, old) != before {
		t.Error("the update has changed what is stored")
	}
	outcome := "ok\n"
	if resource.Strategy.Desired != nil {
		outcome = fmt.Sprintf("ok, generation %d\n", metaOf(obj).GetGeneration())
	}
	if encode(t, resource, obj) == before {
		outcome += "nothing changes\n"
	}
	return outcome
}

// replaced returns the stored object and the sent one.
func replaced(t *testing.T, schemes registry.Schemes, docs []string) (resource registry.Resource, old, obj runtime.Object) {
	t.Helper()
	if len(docs) != 2 {
		t.Fatalf("an update needs two objects, has %d", len(docs))
	}
	resource, old = decode(t, schemes, docs[0])
	_, obj = decode(t, schemes, docs[1])
	for _, o := range []runtime.Object{old, obj} {
		stored(o)
		if resource.Namespaced {
			metaOf(o).SetNamespace(metav1.NamespaceDefault)
		}
	}
	return resource, old, obj
}

// strategyOf returns the strategy of the main endpoint or of a subresource.
func strategyOf(t *testing.T, resource registry.Resource, schemes registry.Schemes, endpoint string) rest.RESTUpdateStrategy {
	t.Helper()
	if endpoint == "main" {
		return mainREST(t, resource, schemes).UpdateStrategy
	}
	storages, err := registry.NewStorages(resource, schemes.Hub, fakeConfig(newFakeStorage(), nil))
	if err != nil {
		t.Fatal(err)
	}
	part, ok := storages[resource.Plural+"/"+endpoint].(interface {
		GetUpdateStrategy() rest.RESTUpdateStrategy
	})
	if !ok {
		t.Fatalf("%s has no endpoint %q", resource.Plural, endpoint)
	}
	return part.GetUpdateStrategy()
}

// tableText prints objects as kubectl get does.
func tableText(t *testing.T, schemes registry.Schemes, docs []string, showWide bool) string {
	t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for i, doc := range docs {
		resource, obj := decode(t, schemes, doc)
		if created := metaOf(obj).GetCreationTimestamp(); created.IsZero() {
			stored(obj)
		}
		printed, err := table.Convertor{Columns: resource.Columns, Now: testNow}.ConvertToTable(t.Context(), obj, nil)
		if err != nil {
			t.Fatal(err)
		}
		var header, cells []string
		for j, column := range printed.ColumnDefinitions {
			if column.Priority == 0 || showWide {
				header = append(header, strings.ToUpper(column.Name))
				cells = append(cells, fmt.Sprint(printed.Rows[0].Cells[j]))
			}
		}
		if i == 0 {
			fmt.Fprintln(w, strings.Join(header, "\t"))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush()
	return out.String()
}
