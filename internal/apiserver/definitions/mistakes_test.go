package definitions

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// treeSchema is the schema of the trees of this test.
const treeSchema = `{"type": "object", "properties": {
	"spec": {"type": "object", "properties": {
		"list": {"type": "array", "items": {"type": "integer"}},
		"lists": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
		"map": {"type": "object", "additionalProperties": {"type": "integer"}},
		"set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
		"rules": {"type": "array", "maxItems": 100000, "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}},
		"choice": {"type": "array", "items": {"type": "integer"},
			"anyOf": [{"items": {"minimum": 10}}, {"items": {"maximum": 10}}],
			"not": {"items": {"minimum": 1000}}},
		"fields": {"type": "array", "items": {"type": "object", "required": ["a", "b", "c"]}},
		"one": {"type": "array", "items": {"type": "integer"}, "oneOf": [{"items": {"minimum": 10}}, {"items": {"maximum": 9}}]},
		"nested": {"type": "array", "items": {"type": "integer"}, "allOf": [{"anyOf": [{"items": {"minimum": 10}}, {"items": {"maximum": 9}}]}]},
		"excluded": {"type": "array", "items": {"type": "integer"}, "not": {"items": {"minimum": 10}}},
		"items": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}, "anyOf": [
			{"properties": {"a": {"minimum": 10}}}, {"properties": {"a": {"maximum": 9}}}]}},
		"embedded": {"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}
	}},
	"status": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}}
}}`

// listLimit is the number of mistakes that a response of this test lists.
const listLimit = 200

const (
	// many is more than that.
	many = 20_000
	// lots is so many that a check which compares every two of them exceeds the timeout of the tests.
	lots = 400_000
)

func treeChecker(t *testing.T) *Checker {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(treeSchema), &props); err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		}},
	}}
	return NewChecker(listLimit, func(name string) (*apiextensionsv1.CustomResourceDefinition, bool) {
		return definition, name == "trees.example.com"
	})
}

func tree(fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Tree",
		"metadata": map[string]any{"name": "a", "namespace": "default", "resourceVersion": "1"},
	}}
	maps.Copy(o.Object, fields)
	return o
}

func specified(name string, value any) *unstructured.Unstructured {
	return tree(map[string]any{"spec": map[string]any{name: value}})
}

func status(list []any) *unstructured.Unstructured {
	return tree(map[string]any{"status": map[string]any{"list": list}})
}

func times[T any](n int, element func(i int) T) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = element(i)
	}
	return list
}

func words(n int) []any   { return times(n, func(int) string { return "x" }) }
func ones(n int) []any    { return times(n, func(int) int64 { return 1 }) }
func numbers(n int) []any { return times(n, func(i int) int64 { return int64(i + 1) }) }

func labelled(n int) *unstructured.Unstructured {
	labels := map[string]any{}
	for i := range n {
		labels[fmt.Sprintf("a %06d", i)] = ""
	}
	o := tree(nil)
	o.Object["metadata"].(map[string]any)["labels"] = labels
	return o
}

func treeWrite(obj, old *unstructured.Unstructured, subresource string) Write {
	return Write{
		Kind:        schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Tree"},
		Resource:    schema.GroupResource{Group: "example.com", Resource: "trees"},
		Subresource: subresource, New: obj, Old: old,
	}
}

// TestManyMistakesOfCustomResources checks that a Checker finds mistakes of every kind, and stops early.
func TestManyMistakesOfCustomResources(t *testing.T) {
	wrongMap := map[string]any{}
	for i := range lots {
		wrongMap[fmt.Sprint("k", i)] = "x"
	}
	pairs := times(many, func(i int) int64 { return int64(i / 2) })
	half := append(numbers(1000), words(lots)...)
	for name, test := range map[string]struct {
		write Write
		path  string
	}{
		"labels":                     {treeWrite(labelled(many), nil, ""), "metadata.labels"},
		"labels of an update":        {treeWrite(labelled(many), tree(nil), ""), "metadata.labels"},
		"types":                      {treeWrite(specified("list", words(lots)), nil, ""), "spec.list[0]"},
		"types after valid ones":     {treeWrite(specified("list", half), nil, ""), "spec.list[1000]"},
		"types of an update":         {treeWrite(specified("list", words(lots)), specified("list", words(lots-1)), ""), "spec.list[0]"},
		"types in a map":             {treeWrite(specified("map", wrongMap), nil, ""), "spec.map.k"},
		"types in lists":             {treeWrite(specified("lists", times(1000, func(int) []any { return words(lots / 1000) })), nil, ""), "spec.lists[0][0]"},
		"duplicates":                 {treeWrite(specified("set", pairs), nil, ""), "spec.set[1]"},
		"duplicates of an update":    {treeWrite(specified("set", pairs), tree(nil), ""), "spec.set[1]"},
		"rules":                      {treeWrite(specified("rules", times(10_000, func(int) int64 { return -1 })), nil, ""), "spec.rules[0]"},
		"rules of an update":         {treeWrite(specified("rules", times(10_000, func(int) int64 { return -1 })), tree(nil), ""), "spec.rules[0]"},
		"choices":                    {treeWrite(specified("choice", times(2000, func(i int) int64 { return int64(i%2) * 100 })), nil, ""), "<nil>"},
		"embedded objects":           {treeWrite(specified("embedded", times(many, func(int) map[string]any { return map[string]any{} })), nil, ""), "spec.embedded[0]"},
		"fields of a small object":   {treeWrite(specified("fields", times(70, func(int) map[string]any { return map[string]any{} })), nil, ""), "spec.fields[0]"},
		"types in a status":          {treeWrite(status(words(lots)), tree(nil), "status"), "status.list[0]"},
		"types in a changed status":  {treeWrite(status(words(lots)), status(words(1)), "status"), "status.list[0]"},
		"types, beside other status": {treeWrite(specified("list", words(lots)), status(numbers(1)), ""), "spec.list[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := treeChecker(t).Mistakes(t.Context(), test.write)
			if len(errs) <= listLimit {
				t.Fatalf("%d mistakes: %.1000v", len(errs), errs)
			}
			if !strings.HasPrefix(errs[0].Field, test.path) {
				t.Errorf("the first mistake is %.300v, want %s", errs[0], test.path)
			}
		})
	}
}

// TestCheckerAcceptsLargeObjects checks that a Checker leaves everything else to apiextensions-apiserver.
func TestCheckerAcceptsLargeObjects(t *testing.T) {
	old, changed := specified("list", words(1000)), specified("list", words(1000))
	changed.SetLabels(map[string]string{"a": "b"})
	managed := tree(map[string]any{"spec": map[string]any{"list": words(100)}})
	managed.Object["metadata"].(map[string]any)["managedFields"] = words(1000)
	wrong, labelledWrong := specified("list", words(many)), specified("list", words(many))
	chosen, labelledChosen := specified("one", ones(many)), specified("one", ones(many))
	for _, o := range []*unstructured.Unstructured{labelledWrong, labelledChosen} {
		o.SetLabels(map[string]string{"a": "b"})
		o.SetFinalizers(nil)
	}
	elsewhere := treeWrite(specified("list", words(1000)), nil, "")
	elsewhere.Resource.Resource = "flowers"
	other := treeWrite(specified("list", words(1000)), nil, "")
	other.Kind.Version = "v2"
	for name, write := range map[string]Write{
		"valid":                           treeWrite(specified("list", numbers(10_000)), nil, ""),
		"valid by the second choice":      treeWrite(specified("choice", times(1000, func(int) int64 { return 1 })), nil, ""),
		"few mistakes":                    treeWrite(specified("list", append(numbers(1000), words(listLimit)...)), nil, ""),
		"a choice, with few mistakes":     treeWrite(specified("choice", append(times(1000, func(int) int64 { return 1 }), words(10)...)), nil, ""),
		"mistakes that were stored":       treeWrite(changed, old, ""),
		"duplicates that were stored":     treeWrite(specified("set", append(times(1000, func(i int) int64 { return int64(i / 2) }), int64(7))), specified("set", times(1000, func(i int) int64 { return int64(i / 2) })), ""),
		"a new object's status":           treeWrite(status(words(1000)), nil, ""),
		"a status beside a stored object": treeWrite(status(numbers(1000)), old, "status"),
		"few values":                      treeWrite(managed, nil, ""),
		"another resource":                elsewhere,
		"another version":                 other,
		"each item by the second choice":  treeWrite(specified("items", times(many, func(int) map[string]any { return map[string]any{"a": int64(1)} })), nil, ""),
		"many mistakes that stay":         treeWrite(labelledWrong, wrong, ""),
		"many choices that stay":          treeWrite(labelledChosen, chosen, ""),
		"a status that stays":             treeWrite(labelledWrong, wrong, "status"),
		"a scale":                         treeWrite(specified("list", words(1000)), nil, "scale"),
	} {
		if errs := treeChecker(t).Mistakes(t.Context(), write); errs != nil {
			t.Errorf("%s: %d mistakes, %.300v", name, len(errs), errs)
		}
	}
}

// TestCheckerBoundsComparisons checks that a Checker refuses an object with too many mistakes to compare, although
// apiextensions-apiserver would ignore them in the end.
func TestCheckerBoundsComparisons(t *testing.T) {
	stored, changed := specified("list", words(many)), specified("list", words(many))
	changed.Object["spec"].(map[string]any)["map"] = map[string]any{"a": int64(1)}
	reported, withSpec := status(words(many)), status(words(many))
	withSpec.Object["spec"] = map[string]any{"list": numbers(1)}
	for name, test := range map[string]struct {
		write Write
		path  string
	}{
		"a list, valid by the second choice":     {treeWrite(specified("choice", ones(many)), nil, ""), "spec.choice"},
		"a list, valid by one of the choices":    {treeWrite(specified("one", ones(many)), nil, ""), "spec.one"},
		"choices in choices":                     {treeWrite(specified("nested", ones(many)), nil, ""), "spec.nested"},
		"a list that must not match":             {treeWrite(specified("excluded", ones(many)), nil, ""), "spec.excluded"},
		"stored mistakes beside a changed field": {treeWrite(changed, stored, ""), "spec.list"},
		"a stored status beside a changed field": {treeWrite(withSpec, reported, ""), "status.list"},
	} {
		errs := treeChecker(t).Mistakes(t.Context(), test.write)
		if len(errs) != 1 || errs[0].Field != test.path || !strings.Contains(errs[0].Detail, "the server compares about 2000 of them") {
			t.Errorf("%s: %.1000v, want an error about %s", name, errs, test.path)
		}
	}
}

// TestCheckerCompilesOnce checks that a Checker keeps the schemas of all definitions, that it drops them with their
// definitions, and that it neither compiles nor evaluates rules for an object that cannot break many.
func TestCheckerCompilesOnce(t *testing.T) {
	c := treeChecker(t)
	one, _ := c.definition("trees.example.com")
	definitions := map[string]*apiextensionsv1.CustomResourceDefinition{}
	c.definition = func(name string) (*apiextensionsv1.CustomResourceDefinition, bool) {
		definition, ok := definitions[name]
		return definition, ok
	}
	const kinds = 100
	name := func(i int) string { return fmt.Sprintf("trees%d.example.com", i) }
	for i := range kinds {
		definitions[name(i)] = one.DeepCopy()
	}
	evaluated := 0
	for round := range 2 {
		for i := range kinds {
			write := treeWrite(specified("rules", numbers(listLimit)), nil, "")
			write.Resource.Resource = fmt.Sprint("trees", i)
			known := c.schemaOf(name(i), definitions[name(i)], "v1")
			if rules := known.rules; round == 0 {
				known.rules = func() *cel.Validator {
					evaluated++
					return rules()
				}
			}
			if errs := c.Mistakes(t.Context(), write); errs != nil || evaluated > 0 {
				t.Fatalf("%d evaluations, %.300v", evaluated, errs)
			}
			if c.schemaOf(name(i), definitions[name(i)], "v1") != known {
				t.Fatalf("the schema of %s was compiled again", name(i))
			}
		}
	}
	if len(c.schemas) != kinds {
		t.Errorf("%d schemas, want %d", len(c.schemas), kinds)
	}
	write := treeWrite(specified("rules", numbers(listLimit+1)), nil, "")
	write.Resource.Resource = "trees0"
	if errs := c.Mistakes(t.Context(), write); errs != nil || evaluated != 1 {
		t.Errorf("%d evaluations, %.300v", evaluated, errs)
	}
	for i := 1; i < kinds; i++ {
		delete(definitions, name(i))
	}
	definitions[name(0)].Generation++
	if c.Mistakes(t.Context(), write); len(c.schemas) != 1 {
		t.Errorf("%d schemas after one definition has changed and the others are gone", len(c.schemas))
	}
}

// TestCheckerFollowsTheDefinition checks that a Checker forgets a schema when it has changed.
func TestCheckerFollowsTheDefinition(t *testing.T) {
	c := treeChecker(t)
	write := treeWrite(specified("list", words(1000)), nil, "")
	if errs := c.Mistakes(t.Context(), write); len(errs) <= listLimit {
		t.Fatalf("%d mistakes", len(errs))
	}
	definition, _ := c.definition("trees.example.com")
	definition.ObjectMeta = metav1.ObjectMeta{Generation: 2}
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object"}
	if errs := c.Mistakes(t.Context(), write); errs != nil {
		t.Errorf("%d mistakes, %.300v", len(errs), errs)
	}
}
