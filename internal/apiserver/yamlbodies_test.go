package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Aliases in YAML bodies cannot expand beyond the limit of a body, wherever YAML is accepted.
func TestAliasesOfYAMLAreBounded(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	configMaps := "/api/v1/namespaces/" + namespace + "/configmaps"
	definitions := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	text := func(name string, length, aliases int) string {
		var data strings.Builder
		for i := range aliases {
			fmt.Fprintf(&data, "  k%d: *a\n", i)
		}
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata:\n  k: &a " + strings.Repeat("x", length) + "\n" + data.String()
	}
	// Each list names the one before it ten times: 10 to the power of levels.
	nested := func(levels int) string {
		var lists strings.Builder
		lists.WriteString("x0: &x0 [" + strings.TrimSuffix(strings.Repeat("a,", 10), ",") + "]\n")
		for i := range levels {
			fmt.Fprintf(&lists, "x%d: &x%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d,", i), 10), ","))
		}
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nested}\n" + lists.String()
	}
	names := strings.TrimSuffix(strings.Repeat("*a,", 20_000), ",")
	const yaml, apply = "application/yaml", "application/apply-patch+yaml"
	for name, test := range map[string]struct {
		request forged
		want    []int
	}{
		"few aliases":               {forged{http.MethodPost, configMaps, "", yaml, text("few", 10, 50)}, []int{http.StatusCreated}},
		"create":                    {forged{http.MethodPost, configMaps, "", yaml, text("create", 100_000, 100)}, []int{http.StatusRequestEntityTooLarge}},
		"create, with a parameter":  {forged{http.MethodPost, configMaps, "", "Application/YAML; charset=utf-8", text("create", 100_000, 100)}, []int{http.StatusRequestEntityTooLarge}},
		"replace":                   {forged{http.MethodPut, configMaps + "/few", "", yaml, text("few", 100_000, 100)}, []int{http.StatusRequestEntityTooLarge}},
		"apply":                     {forged{http.MethodPatch, configMaps + "/apply?fieldManager=x", "", apply, text("apply", 100_000, 100)}, []int{http.StatusRequestEntityTooLarge}},
		"apply, bad parameters":     {forged{http.MethodPatch, configMaps + "/apply?fieldManager=x", "", apply + ";a=b;a=c;;\"", text("apply", 100_000, 100)}, []int{http.StatusRequestEntityTooLarge}},
		"options of a deletion":     {forged{http.MethodDelete, configMaps + "/few", "", yaml, "kind: DeleteOptions\napiVersion: v1\ndryRun: [&a " + strings.Repeat("x", 1000) + "," + names + "]\n"}, []int{http.StatusRequestEntityTooLarge}},
		"definition":                {forged{http.MethodPost, definitions, "", yaml, text("x.y.z", 100_000, 100)}, []int{http.StatusRequestEntityTooLarge}},
		"nested lists":              {forged{http.MethodPost, configMaps, "", yaml, nested(8)}, []int{http.StatusRequestEntityTooLarge, http.StatusBadRequest}},
		"long names of fields":      {forged{http.MethodPost, configMaps, "", yaml, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: n}\nx: &a {" + strings.Repeat("x", 1000) + ": 1}\ny: [" + names + "]\n"}, []int{http.StatusRequestEntityTooLarge}},
		"no aliases, but the signs": {forged{http.MethodPost, configMaps, "", yaml, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: signs}\ndata: {a: \"x && y *\"}\n"}, []int{http.StatusCreated}},
		"no YAML":                   {forged{http.MethodPost, configMaps, "", yaml, "a: &a *"}, []int{http.StatusBadRequest}},
	} {
		code, answer := forge(t, s.config, test.request)
		found := false
		for _, want := range test.want {
			found = found || code == want
		}
		if !found {
			t.Errorf("%s: %d %.300s, want %v", name, code, answer, test.want)
		}
	}
}
