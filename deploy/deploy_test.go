package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/collector"
	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/metrics"
)

// objects reads the documents of a file, and has unknown fields be errors.
func objects(t *testing.T, text []byte) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var all []runtime.Object
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		all = append(all, object)
	}
}

// base are the objects of the kustomize base.
func base(t *testing.T) []runtime.Object {
	t.Helper()
	var kustomization struct{ Resources []string }
	parse(t, "kustomize/base/kustomization.yaml", &kustomization)
	var all []runtime.Object
	for _, file := range kustomization.Resources {
		all = append(all, objects(t, read(t, filepath.Join("kustomize/base", file)))...)
	}
	return all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal(read(t, path), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// render does what helm does, with those of its functions that the chart uses.
func render(t *testing.T, release string, change func(values map[string]any)) []byte {
	t.Helper()
	values := map[string]any{}
	parse(t, "helm/coppice/values.yaml", &values)
	if change != nil {
		change(values)
	}
	functions := template.FuncMap{
		"toYaml": func(v any) (string, error) {
			data, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(data), "\n"), err
		},
		"nindent": func(n int, text string) string {
			indent := "\n" + strings.Repeat(" ", n)
			return indent + strings.ReplaceAll(text, "\n", indent)
		},
		"join": func(separator string, list []any) string {
			var parts []string
			for _, part := range list {
				parts = append(parts, part.(string))
			}
			return strings.Join(parts, separator)
		},
		"has":   func(one any, list []any) bool { return slices.Contains(list, one) },
		"quote": func(text any) (string, error) { data, err := json.Marshal(text); return string(data), err },
	}
	files, err := filepath.Glob("helm/coppice/templates/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no templates: %v", err)
	}
	var out bytes.Buffer
	for _, file := range files {
		out.WriteString("---\n")
		parsed, err := template.New(file).Option("missingkey=error").Funcs(functions).Parse(string(read(t, file)))
		if err != nil {
			t.Fatal(err)
		}
		if err := parsed.Execute(&out, map[string]any{"Values": values, "Release": map[string]any{"Name": release, "Namespace": "coppice-system"}}); err != nil {
			t.Fatal(err)
		}
		out.WriteString("\n")
	}
	return out.Bytes()
}

// TestChartIsTheBase: with its default values the chart makes what the kustomize base
// makes, but for the namespace, which helm makes itself.
func TestChartIsTheBase(t *testing.T) {
	want := byName(t, base(t))
	delete(want, "Namespace coppice-system")
	if diff := cmp.Diff(want, byName(t, objects(t, render(t, "coppice", nil)))); diff != "" {
		t.Errorf("the chart differs from the base (-base +chart):\n%s", diff)
	}
}

// byName is what the objects say, by kind and name.
func byName(t *testing.T, all []runtime.Object) map[string]any {
	t.Helper()
	named := map[string]any{}
	for _, object := range all {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		metadata := fields["metadata"].(map[string]any)
		named[object.GetObjectKind().GroupVersionKind().Kind+" "+metadata["name"].(string)] = fields
	}
	return named
}

// TestChartValues changes every value.
func TestChartValues(t *testing.T) {
	text := string(render(t, "second", func(v map[string]any) {
		v["controllers"] = []any{"gc", "namespace"}
		v["ignoreResources"] = []any{"leases.coordination.k8s.io", "pods"}
		v["extraArgs"] = []any{"--log-level=debug"}
		v["nodeSelector"] = map[string]any{"kubernetes.io/os": "linux"}
		v["tolerations"] = []any{map[string]any{"operator": "Exists"}}
		v["replicas"] = 3
	}))
	objects(t, []byte(text))
	for _, want := range []string{
		"--controllers=gc,namespace", "--ignore-resources=leases.coordination.k8s.io,pods", "--log-level=debug",
		"kubernetes.io/os: linux", "operator: Exists", "replicas: 3", "namespaces/finalize", "deletecollection", "name: second",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the chart does not say %q:\n%s", want, text)
		}
	}
	text = string(render(t, "coppice", func(v map[string]any) { v["observeOnly"] = true }))
	objects(t, []byte(text))
	if !strings.Contains(text, "--observe-only") || strings.Contains(text, "delete") || strings.Contains(text, "patch") {
		t.Errorf("the chart that observes may change something:\n%s", text)
	}
}

// TestMetricsExist: whatever the dashboard and the alerts ask for is there to be scraped.
func TestMetricsExist(t *testing.T) {
	known := scraped(t)
	for _, file := range []string{"monitoring/alerts.yaml", "monitoring/dashboard.json"} {
		text := string(read(t, file))
		var any map[string]any
		parse(t, file, &any)
		names := regexp.MustCompile(`\bcoppice_[a-z_]+`).FindAllString(text, -1)
		if len(names) < 5 {
			t.Errorf("%s names %d metrics", file, len(names))
		}
		for _, name := range names {
			if !known[name] && !known[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s asks for %s, which there is not", file, name)
			}
		}
	}
}

// scraped are the names of all metrics.
func scraped(t *testing.T) map[string]bool {
	t.Helper()
	set := metrics.New(func() metrics.Reading {
		return metrics.Reading{
			Monitors:  []feed.MonitorStatus{{}},
			Collector: collector.Status{Barrier: []collector.BarrierWait{{Holds: []collector.Hold{{}}}}, Paused: []collector.Pause{{}}},
		}
	})
	request := httptest.NewRequest(http.MethodGet, "http://server/api/v1/pods", http.NoBody)
	if _, err := set.Transport(answering{}).RoundTrip(request); err != nil {
		t.Fatal(err)
	}
	families, err := metrics.Gatherer(set).Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, family := range families {
		known[family.GetName()] = true
	}
	return known
}

type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}
