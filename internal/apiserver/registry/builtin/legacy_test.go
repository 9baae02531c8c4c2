package builtin

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// eachLegacy runs a test for every resource in every legacy version.
func eachLegacy(t *testing.T, test func(t *testing.T, l registry.LegacyVersion, resource registry.Resource)) {
	t.Helper()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		for _, l := range resource.Legacy {
			t.Run(l.GroupVersion.Group+"."+l.GroupVersion.Version, func(t *testing.T) { test(t, l, resource) })
		}
	})
}

// TestLegacyVersions checks that each version serves the same kinds as in Kubernetes.
func TestLegacyVersions(t *testing.T) {
	got := map[string][]string{}
	eachLegacy(t, func(_ *testing.T, l registry.LegacyVersion, resource registry.Resource) {
		got[l.GroupVersion.String()] = append(got[l.GroupVersion.String()], resource.Plural)
	})
	for _, resources := range got {
		slices.Sort(resources)
	}
	want := map[string][]string{
		"extensions/v1beta1": {"daemonsets", "deployments", "replicasets"},
		"apps/v1beta1":       {"controllerrevisions", "deployments", "statefulsets"},
		"apps/v1beta2":       {"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	preferred := NewSchemes().Hub.PrioritizedVersionsForGroup("apps")
	if len(preferred) != 3 || preferred[0] != appsv1.SchemeGroupVersion {
		t.Errorf("versions of apps: %v", preferred)
	}
}

// TestLegacyRoundTrip checks that an object loses nothing in a legacy version.
func TestLegacyRoundTrip(t *testing.T) {
	schemes := NewSchemes()
	eachLegacy(t, func(t *testing.T, l registry.LegacyVersion, resource registry.Resource) {
		fill := newFuzzer(t, schemes)
		for range fuzzRounds {
			obj := resource.New()
			fill.Fill(obj)
			legacy, err := schemes.Hub.ConvertToVersion(obj.DeepCopyObject(), l.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			if gvk := legacy.GetObjectKind().GroupVersionKind(); gvk != l.GroupVersion.WithKind(resource.Kind) {
				t.Fatalf("it is a %v", gvk)
			}
			got, err := schemes.Hub.ConvertToVersion(legacy, schema.GroupVersion{Group: l.GroupVersion.Group, Version: runtime.APIVersionInternal})
			if err != nil {
				t.Fatal(err)
			}
			got.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
			if !equality.Semantic.DeepEqual(obj, got) {
				t.Fatalf("comes back changed (-sent +got):\n%s", cmp.Diff(obj, got))
			}
		}
	})
}

// TestLegacyLists checks that lists are converted as a whole.
func TestLegacyLists(t *testing.T) {
	schemes := NewSchemes()
	list := &appsv1.DaemonSetList{Items: []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "3", "other": "x"},
	}}}}
	list.ResourceVersion = "7"
	converted, err := schemes.Hub.ConvertToVersion(list, extensionsv1beta1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	got := converted.(*extensionsv1beta1.DaemonSetList)
	if got.ResourceVersion != "7" || len(got.Items) != 1 || got.Items[0].Spec.TemplateGeneration != 3 {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff(map[string]string{"other": "x"}, got.Items[0].Annotations); diff != "" {
		t.Error(diff)
	}
}

// TestLegacyDefaults checks that a field that is missing in a legacy version gets the default of that version.
func TestLegacyDefaults(t *testing.T) {
	schemes := NewSchemes()
	const template = `template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a, image: a}]}}`
	for _, test := range []struct {
		version, kind string
		want          func(runtime.Object) (got, want any)
	}{
		{"extensions/v1beta1", "Deployment", func(o runtime.Object) (any, any) {
			d := o.(*appsv1.Deployment)
			return []any{*d.Spec.RevisionHistoryLimit, *d.Spec.ProgressDeadlineSeconds, d.Spec.Strategy.RollingUpdate.MaxSurge.String(), d.Spec.Selector.MatchLabels["app"], d.Labels["app"], *d.Spec.Replicas},
				[]any{int32(2147483647), int32(2147483647), "1", "a", "a", int32(1)}
		}},
		{"apps/v1beta1", "Deployment", func(o runtime.Object) (any, any) {
			d := o.(*appsv1.Deployment)
			return []any{*d.Spec.RevisionHistoryLimit, *d.Spec.ProgressDeadlineSeconds, d.Spec.Strategy.RollingUpdate.MaxSurge.String(), d.Spec.Selector.MatchLabels["app"]},
				[]any{int32(2), int32(600), "25%", "a"}
		}},
		{"apps/v1beta2", "Deployment", func(o runtime.Object) (any, any) {
			d := o.(*appsv1.Deployment)
			return []any{*d.Spec.RevisionHistoryLimit, d.Spec.Selector == nil, len(d.Labels)}, []any{int32(10), true, 0}
		}},
		{"extensions/v1beta1", "DaemonSet", func(o runtime.Object) (any, any) {
			d := o.(*appsv1.DaemonSet)
			return []any{d.Spec.UpdateStrategy.Type, d.Spec.Selector.MatchLabels["app"]}, []any{appsv1.OnDeleteDaemonSetStrategyType, "a"}
		}},
		{"apps/v1beta2", "DaemonSet", func(o runtime.Object) (any, any) {
			return o.(*appsv1.DaemonSet).Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType
		}},
		{"apps/v1beta1", "StatefulSet", func(o runtime.Object) (any, any) {
			s := o.(*appsv1.StatefulSet)
			return []any{s.Spec.UpdateStrategy.Type, s.Spec.PodManagementPolicy}, []any{appsv1.OnDeleteStatefulSetStrategyType, appsv1.OrderedReadyPodManagement}
		}},
		{"extensions/v1beta1", "ReplicaSet", func(o runtime.Object) (any, any) {
			r := o.(*appsv1.ReplicaSet)
			return []any{*r.Spec.Replicas, r.Spec.Selector.MatchLabels["app"], r.Labels["app"]}, []any{int32(1), "a", "a"}
		}},
	} {
		t.Run(test.version+" "+test.kind, func(t *testing.T) {
			text := "{apiVersion: " + test.version + ", kind: " + test.kind + ", metadata: {name: a}, spec: {" + template + "}}"
			json, err := yaml.YAMLToJSONStrict([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			obj, _, err := schemes.Codecs.UniversalDecoder().Decode(json, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, want := test.want(obj)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
