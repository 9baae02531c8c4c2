package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// write makes the files of a release, or of a part of one, and returns their directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, text := range files {
		name = filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func wantPage(t *testing.T, page *strings.Builder, want string) {
	t.Helper()
	if d := cmp.Diff(strings.TrimLeft(want, "\n"), strings.TrimLeft(page.String(), "\n")); d != "" {
		t.Errorf("the page differs (-want +got):\n%s", d)
	}
}

func TestResourcesAndVerbsThatChangedAreListed(t *testing.T) {
	discovery := func(core, apps string) release {
		return release{directories: map[string]string{kubernetes: write(t, map[string]string{
			"api/discovery/api__v1.json":       `{"resources": [` + core + `]}`,
			"api/discovery/aggregated_v2.json": `{"items": [{"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [` + apps + `]}]}]}`,
		})}}
	}
	before := discovery(
		`{"name": "pods", "verbs": ["get", "list"]}, {"name": "pods/status", "verbs": ["get"]}`,
		`{"resource": "deployments", "verbs": ["get"], "subresources": [{"subresource": "rollback", "verbs": ["create"]}]}`)
	after := discovery(
		`{"name": "pods", "verbs": ["get", "watch"]}, {"name": "pods/status", "verbs": ["get"]}, {"name": "pods/resize", "verbs": ["get", "patch"]}`,
		`{"resource": "deployments", "verbs": ["get"]}`)
	var page strings.Builder
	if err := resourcesChanged(&page, before, after); err != nil {
		t.Fatal(err)
	}
	wantPage(t, &page, `
## Resources and verbs that came and went: 3

Alpha and beta versions are not served unless somebody asks for them, here as upstream.

* went: `+"`apps/v1 deployments/rollback`"+`
* verbs of `+"`v1 pods`"+`: came [watch], went [list]
* came: `+"`v1 pods/resize`"+` (get patch)
`)
}

func TestFieldsThatChangedAreListed(t *testing.T) {
	openapi := func(spec string) release {
		return release{directories: map[string]string{kubernetes: write(t, map[string]string{
			"api/openapi-spec/v3/apis__shop__v1beta1_openapi.json": `{"components": {"schemas": {"io.k8s.api.shop.v1beta1.Cart": {"properties": {"spec": {"type": "` + spec[:6] + `"}}}}}}`,
			"api/openapi-spec/v3/apis__shop__v1_openapi.json": `{"components": {"schemas": {
				"io.k8s.api.shop.v1.Cart": {"x-kubernetes-group-version-kind": [{"kind": "Cart"}],
					"properties": {"spec": {"default": {}, "allOf": [{"$ref": "#/components/schemas/io.k8s.api.shop.v1.CartSpec"}]}}},
				"io.k8s.api.shop.v1.CartSpec": {"properties": {` + spec + `]}}}}`,
		})}}
	}
	before := openapi(`"kept": {"type": "string"}, "wheels": {"type": "integer", "format": "int32"}, "color": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string", "default": ""}}}, "required": ["wheels", "color"`)
	after := openapi(`"kept": {"type": "string"}, "wheels": {"type": "integer", "format": "int32", "default": 4}, "tags": {"type": "array", "items": {"type": "string"}},
		"loads": {"type": "object", "additionalProperties": {"type": "string"}, "description": "loads are\n in the cart. More."}}, "required": ["tags", "loads"`)
	var page strings.Builder
	if err := fieldsChanged(&page, before, after); err != nil {
		t.Fatal(err)
	}
	wantPage(t, &page, `
## Fields that came, went or changed: 1

In v1 and later versions, by type, with the kinds whose objects have it.

* **shop.v1.CartSpec**, in Cart
  * went: `+"`color`"+`
  * came: `+"`loads`"+`, map of string: loads are in the cart.
  * changed: `+"`tags`"+` is required
  * changed: `+"`wheels`"+` was integer (int32), is integer (int32), by default 4
  * changed: `+"`wheels`"+` is no longer required
`)
}

func TestGatesThatChangedAreListed(t *testing.T) {
	const since = `
- {name: Same, versionedSpecs: [{version: "1.30", default: true, preRelease: Beta}]}
- {name: Turned, versionedSpecs: [{version: "1.30", default: false, preRelease: Alpha}, {version: "1.37", default: true, preRelease: Beta}]}
- {name: Done, versionedSpecs: [{version: "1.36", default: true, preRelease: Beta}, {version: "1.37", default: true, lockToDefault: true, preRelease: GA}]}
- {name: Young, versionedSpecs: [{version: "1.37", default: false, preRelease: Alpha}]}
- {name: Later, versionedSpecs: [{version: "1.38", default: true, preRelease: Beta}]}
`
	types := write(t, map[string]string{"shop/v1/types.go": `
type CartKind string
const (
	// +featureGate=Done
	Open CartKind = "Open"
	// +featureGate=Turned
	Closed CartKind = "Closed"
)
type CartSpec struct {
	// wheels of the cart
	// +featureGate=Other,Turned
	// +optional
	Wheels *int32
	Color  string
}
`})
	gates := func(version, text string) release {
		return release{version, map[string]string{library: types, kubernetes: write(t, map[string]string{"test/compatibility_lifecycle/reference/versioned_feature_list.yaml": text})}}
	}
	before := gates("v1.36.3", since+`- {name: Old, versionedSpecs: [{version: "1.20", default: true, preRelease: Deprecated}]}`)
	var page strings.Builder
	if err := gatesChanged(&page, before, gates("v1.37.2", since)); err != nil {
		t.Fatal(err)
	}
	wantPage(t, &page, `
## Feature gates that changed: 4

First those whose default changed: behaviour that users see; with the fields whose comments name the gate.

* **Turned: was off, Alpha, is on, Beta**
  * shop.v1.Closed
  * shop.v1.CartSpec.Wheels
* Done: was on, Beta, is on for good, GA
* went: Old (was on, Deprecated)
* came: Young (off, Alpha)
`)
}

func TestFilesThatChangedAreListed(t *testing.T) {
	before := write(t, map[string]string{"same.go": "a\n", "changed.go": "a\nb\n", "went.go": "a\n", "changed_test.go": "a\n", "zz_generated.x.go": "a\n", "README.md": "a\n"})
	after := write(t, map[string]string{"same.go": "a\n", "changed.go": "a\nc\nd\n", "sub/came.go": "a\n", "changed_test.go": "b\n", "zz_generated.x.go": "b\n", "README.md": "b\n"})
	got, err := filesChanged(t.Context(), before, after)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"changed.go +2 -1", "sub/came.go +1 -0", "went.go +0 -1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("differences (-want +got):\n%s", d)
	}
	if got, err := filesChanged(t.Context(), filepath.Join(before, "none"), after); err != nil || len(got) != 1 || !strings.Contains(got[0], "is new") {
		t.Errorf("a directory that is new: %q, %v", got, err)
	}
	got, err = filesChanged(t.Context(), filepath.Join(before, "changed.go"), filepath.Join(after, "changed.go"))
	if d := cmp.Diff([]string{"changed.go +2 -1"}, got); d != "" || err != nil {
		t.Errorf("a single file: %v (-want +got):\n%s", err, d)
	}
}

func TestCounterpartsNamePackagesThatExist(t *testing.T) {
	for _, c := range counterparts() {
		for here := range strings.SplitSeq(c.here, ", ") {
			if _, err := os.Stat(filepath.Join("..", "..", here)); err != nil {
				t.Errorf("for %s/%s: %v", c.module, c.path, err)
			}
		}
	}
}

func TestDifferencesAreListedWithTheirExamples(t *testing.T) {
	dir := write(t, map[string]string{"objects.txt": "# To be mended.\nPod: spec.a differs\n  spec.a: ours 1, theirs 2 in create Pod spec.a = 1\nJob: spec.b differs\n"})
	var page strings.Builder
	if err := differencesFound(&page, filepath.Join(dir, "objects.txt")); err != nil {
		t.Fatal(err)
	}
	want := "* Pod: spec.a differs\n  * for example spec.a: ours 1, theirs 2 in create Pod spec.a = 1\n* Job: spec.b differs\n"
	if _, rows, _ := strings.Cut(page.String(), "with a reason.\n\n"); rows != want {
		t.Errorf("%q, want %q", rows, want)
	}
}

func TestReleasesAreChecked(t *testing.T) {
	for _, r := range []releases{{}, {from: "v1.36.3"}, {from: "1.36", to: "v1.37.2"}} {
		if err := r.check(); err == nil || !strings.Contains(err.Error(), "-from v1.36.3") {
			t.Errorf("%v: %v; want an error with an example", r, err)
		}
	}
}
