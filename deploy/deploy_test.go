// Package deploy_test renders the Helm chart and the kustomizations with Helm's own engine and
// kustomize's own API, compares the results, and evaluates the alerts with Prometheus' own engine.
//
// It is a module of its own: Helm requires newer versions of libraries that are part of the
// control plane (gRPC, OpenTelemetry, golang.org/x/net) than Kubernetes' own modules do, and a
// test must not determine the versions that the binary is built with.
package deploy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	chartDir  = "helm/coppice"
	namespace = "coppice-system"
)

// values are overrides of the chart's values.
type values = map[string]any

// render returns the manifests that the chart renders for a release. It is an error if a
// template uses a value that values.yaml does not have.
func render(t *testing.T, release string, override values) []byte {
	t.Helper()
	loaded := load(t)
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, override, options, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), loaded, all)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			out.WriteString("---\n" + files[name] + "\n")
		}
	}
	return out.Bytes()
}

// build returns the manifests that a kustomization renders.
func build(t *testing.T, name string) []byte {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join("kustomize", name))
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// objects returns the objects in manifests by kind and name. An unknown field is an error.
func objects(t *testing.T, manifests []byte) map[string]any {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	all := map[string]any{}
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		key := kind.Kind + " " + fields["metadata"].(map[string]any)["name"].(string)
		if all[key] != nil {
			t.Fatalf("%s is there twice", key)
		}
		all[key] = fields
	}
}

// TestChartIsTheKustomization: the chart renders the same objects as the kustomization, except
// for the namespace, which helm creates itself.
func TestChartIsTheKustomization(t *testing.T) {
	for _, c := range []struct {
		kustomization string
		chart         values
	}{
		{"base", nil},
		{"observe-only", values{"observeOnly": true}},
	} {
		t.Run(c.kustomization, func(t *testing.T) {
			want := objects(t, build(t, c.kustomization))
			if want["Namespace "+namespace] == nil || len(want) < 2 {
				t.Fatalf("the kustomization makes %v", slices.Sorted(maps.Keys(want)))
			}
			delete(want, "Namespace "+namespace)
			if diff := cmp.Diff(want, objects(t, render(t, "coppice", c.chart))); diff != "" {
				t.Errorf("the chart differs from the kustomization (-kustomization +chart):\n%s", diff)
			}
		})
	}
}

// TestPolicyOfTheChart: the chart makes the same policy as the kustomization, which needs no
// collector.
func TestPolicyOfTheChart(t *testing.T) {
	without := objects(t, render(t, "coppice", nil))
	with := objects(t, render(t, "coppice", values{"protect": values{"policy": true}}))
	for name := range without {
		delete(with, name)
	}
	if diff := cmp.Diff(objects(t, build(t, "protect")), with); diff != "" || len(with) != 2 {
		t.Errorf("the chart's policy differs from the kustomization's (-kustomization +chart):\n%s", diff)
	}
}

// TestWebhookOfTheCollectors: the Service, the certificate and the flags of the collectors belong together.
func TestWebhookOfTheCollectors(t *testing.T) {
	manifests := build(t, "protect-webhook")
	all := objects(t, manifests)
	for _, name := range []string{"Deployment coppice", "Service coppice-protect", "ClusterRole coppice-protect", "ClusterRoleBinding coppice-protect", "ValidatingWebhookConfiguration coppice-protect", "ValidatingAdmissionPolicy coppice-protect-binding"} {
		if all[name] == nil {
			t.Errorf("no %s among %v", name, slices.Sorted(maps.Keys(all)))
		}
	}
	for _, want := range []string{
		"- --protect-address=:10272\n", "- --protect-cert-file=/etc/coppice-protect/tls.crt\n", "- --protect-client-ca-file=/etc/coppice-protect-callers/ca.crt\n", "name: coppice-protect-callers\n", "containerPort: 10272\n",
		"targetPort: protect\n", "mountPath: /etc/coppice-protect\n", "secretName: coppice-protect\n", "path: /protect\n",
	} {
		if !bytes.Contains(manifests, []byte(want)) {
			t.Errorf("the kustomization does not say %q", want)
		}
	}
}

// TestConfirmingWebhook: large deletions need a confirmation in addition to what the webhook of protected objects does.
func TestConfirmingWebhook(t *testing.T) {
	manifests := build(t, "confirm-webhook")
	all := objects(t, manifests)
	for name := range objects(t, build(t, "protect-webhook")) {
		if all[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	configuration, _ := all["ValidatingWebhookConfiguration coppice-confirm"].(map[string]any)
	if configuration == nil || all["Role coppice-confirm"] == nil || all["RoleBinding coppice-confirm"] == nil {
		t.Fatalf("something is missing among %v", slices.Sorted(maps.Keys(all)))
	}
	policies := map[any]any{}
	for _, w := range configuration["webhooks"].([]any) {
		webhook := w.(map[string]any)
		policies[webhook["name"]] = webhook["failurePolicy"]
	}
	want := map[any]any{"delete.confirm.coppice.dev": "Fail", "controllers.confirm.coppice.dev": "Ignore", "write.confirm.coppice.dev": "Fail"}
	if diff := cmp.Diff(want, policies); diff != "" {
		t.Errorf("failure policies (-want +got):\n%s", diff)
	}
	if !bytes.Contains(manifests, []byte("--confirm-deletions=more-than=50; kinds=namespaces,")) {
		t.Error("the collectors have no limits")
	}
}

// TestDefaultsOfTheWebhook: the kustomization adds a webhook, and changes none.
func TestDefaultsOfTheWebhook(t *testing.T) {
	const name = "ValidatingWebhookConfiguration coppice-protect"
	without, with := objects(t, build(t, "protect-webhook")), objects(t, build(t, "protect-defaults"))
	webhooksOf := func(configuration any) []any {
		fields, _ := configuration.(map[string]any)
		all, _ := fields["webhooks"].([]any)
		return all
	}
	before, after := webhooksOf(without[name]), webhooksOf(with[name])
	if len(after) != len(before)+1 {
		t.Fatalf("%d webhooks, and %d with the defaults", len(before), len(after))
	}
	if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
		t.Error(diff)
	}
	delete(without, name)
	delete(with, name)
	if diff := cmp.Diff(without, with); diff != "" {
		t.Error(diff)
	}
}

// TestObserveOnlyMayChangeNothing: neither form has a verb that writes, except on the Lease of
// leader election.
func TestObserveOnlyMayChangeNothing(t *testing.T) {
	for name, manifests := range map[string][]byte{
		"kustomization": build(t, "observe-only"),
		"chart":         render(t, "coppice", values{"observeOnly": true}),
	} {
		all := objects(t, manifests)
		role, ok := all["ClusterRole coppice"].(map[string]any)
		if !ok {
			t.Fatalf("%s: no ClusterRole among %v", name, slices.Sorted(maps.Keys(all)))
		}
		for _, rule := range role["rules"].([]any) {
			for _, verb := range rule.(map[string]any)["verbs"].([]any) {
				if !slices.Contains([]any{"get", "list", "watch"}, verb) {
					t.Errorf("%s: the ClusterRole allows %s", name, verb)
				}
			}
		}
		if !bytes.Contains(manifests, []byte("- --observe-only\n")) {
			t.Errorf("%s: the Deployment does not say --observe-only:\n%s", name, manifests)
		}
	}
}

// TestChartValues: every value of values.yaml changes the rendered chart.
func TestChartValues(t *testing.T) {
	cases := map[string]struct {
		value any
		want  []string
	}{
		"image": {
			values{"repository": "registry.example/gc", "tag": "v9", "pullPolicy": "Always"},
			[]string{"image: registry.example/gc:v9\n", "imagePullPolicy: Always\n"},
		},
		"replicas":        {3, []string{"replicas: 3\n"}},
		"controllers":     {[]any{"gc", "namespace"}, []string{"--controllers=gc,namespace\n", "namespaces/finalize", "deletecollection"}},
		"ignoreResources": {[]any{"leases.coordination.k8s.io", "pods"}, []string{"--ignore-resources=leases.coordination.k8s.io,pods\n"}},
		"observeOnly":     {true, []string{"- --observe-only\n"}},
		"protect":         {values{"policy": true}, []string{"kind: ValidatingAdmissionPolicyBinding\n", "'system:serviceaccount:coppice-system:second']\n"}},
		"extraArgs":       {[]any{"--log-level=debug"}, []string{"--log-level=debug"}},
		"resources":       {values{"limits": values{"memory": "1Gi"}}, []string{"memory: 1Gi\n"}},
		"nodeSelector":    {values{"kubernetes.io/os": "linux"}, []string{"kubernetes.io/os: linux\n"}},
		"tolerations":     {[]any{values{"operator": "Exists"}}, []string{"operator: Exists\n"}},
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(load(t).Values)), slices.Sorted(maps.Keys(cases))); diff != "" {
		t.Fatalf("values that are not tested (-values.yaml +tested):\n%s", diff)
	}
	unchanged := string(render(t, "second", nil))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			manifests := render(t, "second", values{name: c.value})
			objects(t, manifests)
			for _, want := range c.want {
				if strings.Contains(unchanged, want) {
					t.Errorf("the chart says %q without that value, too", want)
				}
				if !strings.Contains(string(manifests), want) {
					t.Errorf("the chart does not say %q:\n%s", want, manifests)
				}
			}
		})
	}
}

// TestReleaseName: two releases have no object in common.
func TestReleaseName(t *testing.T) {
	first, second := objects(t, render(t, "first", nil)), objects(t, render(t, "second", nil))
	if len(first) != len(second) {
		t.Errorf("the releases have %d and %d objects", len(first), len(second))
	}
	for name := range first {
		if second[name] != nil {
			t.Errorf("both releases have %s", name)
		}
	}
}

// TestChartLints runs the checks of helm lint.
func TestChartLints(t *testing.T) {
	for _, message := range lint.RunAll(chartDir, nil, namespace).Messages {
		if message.Severity >= support.WarningSev {
			t.Error(message)
		}
	}
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}
