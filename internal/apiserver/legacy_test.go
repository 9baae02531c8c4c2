package apiserver_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// legacyDeployment is a manifest of 2016, without a selector.
func legacyDeployment() map[string]any {
	return map[string]any{"spec": map[string]any{"replicas": int64(0), "template": map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}},
	}}}
}

// AS-08: the group version of the request, not of the creation, determines the default policy for
// dependents.
func TestR17_LegacyDefaults(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	in := func(group, version string) collection {
		return s.collection(t, gvk(group, version, "Deployment"), "deployments", namespace, legacyDeployment())
	}
	current, extensions := in("apps", "v1"), in("extensions", "v1beta1")
	for _, legacy := range []collection{extensions, in("apps", "v1beta1"), in("apps", "v1beta2")} {
		t.Run(legacy.kind.GroupVersion().String(), func(t *testing.T) {
			created := extensions.create("a")
			if got := legacy.mustRemove("a", nil).GetFinalizers(); !slices.Equal(got, []string{orphan}) {
				t.Errorf("finalizers %v, want %v", got, []string{orphan})
			}
			isGone(t, legacy, legacy.mustRemove("a", policy(metav1.DeletePropagationBackground)), created)

			extensions.create("b")
			legacy.mustRemove("b", orphanDependents(false))
			if legacy.get("b") != nil {
				t.Error("orphanDependents=false: it still exists")
			}
			extensions.create("c")
			if _, err := legacy.removeAll(nil, nil); err != nil {
				t.Fatal(err)
			}
			if got := legacy.get("c").GetFinalizers(); !slices.Equal(got, []string{orphan}) {
				t.Errorf("of a collection: finalizers %v", got)
			}
			// An update in the legacy version removes it, like one in any other version.
			if _, err := legacy.patch("c", "application/merge-patch+json", mergeFinalizers()); err != nil {
				t.Fatal(err)
			}
			if current.get("c") != nil {
				t.Error("the emptying update has left it")
			}
		})
	}
	created := extensions.create("d")
	isGone(t, current, current.mustRemove("d", nil), created)
}

// A policy for deployments of apps/v1 also sees those of the older groups: they are the same objects.
func TestPoliciesSeeLegacyVersions(t *testing.T) {
	s := sharedServer(t)
	namespace, deployment := s.namespace(t), legacyDeployment()
	deployment["spec"].(map[string]any)["selector"] = map[string]any{"matchLabels": map[string]any{"app": "a"}}
	refuseDeletions(t, s.collection(t, gvk("apps", "v1", "Deployment"), "deployments", namespace, deployment))
	for _, version := range []string{"extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"} {
		group, version, _ := strings.Cut(version, "/")
		legacy := s.collection(t, gvk(group, version, "Deployment"), "deployments", namespace, nil)
		if _, err := legacy.remove("bad-first", nil); !apierrors.IsInvalid(err) {
			t.Errorf("%s/%s: %s, want it refused by the policy", group, version, errText(err))
		}
	}
}

// A legacy version serves the same objects as v1, and watches, applies and prints them.
func TestLegacyVersionsAreServed(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	legacy := s.collection(t, gvk("extensions", "v1beta1", "Deployment"), "deployments", namespace, legacyDeployment())
	current := s.collection(t, gvk("apps", "v1", "Deployment"), "deployments", namespace, nil)
	created := legacy.create("a")
	events := legacy.watch(created.GetResourceVersion())
	if got := current.get("a"); got.GetUID() != created.GetUID() || got.GetAPIVersion() != "apps/v1" {
		t.Fatalf("in apps/v1 it is %v", got)
	}
	applied := legacy.named("a")
	applied.SetLabels(map[string]string{"applied": "yes"})
	if _, err := legacy.send(http.MethodPatch, legacy.at("a")+"?fieldManager=test&force=true", "application/apply-patch+yaml", applied); err != nil {
		t.Fatal(err)
	}
	event := <-events
	if o := event.Object; o.GetAPIVersion() != "extensions/v1beta1" || o.GetLabels()["applied"] != "yes" {
		t.Errorf("watch: %v", o)
	}
	if got := current.get("a").GetLabels()["applied"]; got != "yes" {
		t.Errorf("what was applied in a legacy version is %q in v1", got)
	}
	if list := legacy.list(); len(list) != 1 || list[0].GetUID() != created.GetUID() {
		t.Errorf("list: %v", list)
	}
	groups, err := current.send(http.MethodGet, "/apis", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, g := range groups.Object["groups"].([]any) {
		g := g.(map[string]any)
		names = append(names, g["name"].(string))
		if g["name"] == "apps" && g["preferredVersion"].(map[string]any)["version"] != "v1" {
			t.Errorf("preferred of apps: %v", g["preferredVersion"])
		}
	}
	if apps, ext := slices.Index(names, "apps"), slices.Index(names, "extensions"); apps < 0 || ext < apps {
		t.Errorf("groups in this order: %v", names)
	}
}

// /scale has its own type in each legacy version, and the same effect on the object; the field manager of
// replicas is tracked for each endpoint.
func TestLegacyScale(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	first := s.collection(t, gvk("extensions", "v1beta1", "Deployment"), "deployments", namespace, legacyDeployment())
	current := s.collection(t, gvk("apps", "v1", "Deployment"), "deployments", namespace, nil)
	for i, version := range []string{"extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"} {
		t.Run(version, func(t *testing.T) {
			group, short, _ := strings.Cut(version, "/")
			legacy := s.collection(t, gvk(group, short, "Deployment"), "deployments", namespace, nil)
			name := fmt.Sprintf("a%d", i)
			first.create(name)
			scale, err := legacy.send(http.MethodGet, legacy.at(name, "scale"), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			status, _ := scale.Object["status"].(map[string]any)
			if want := map[string]any{"replicas": int64(0), "selector": map[string]any{"app": "a"}, "targetSelector": "app=a"}; !reflect.DeepEqual(status, want) || scale.GetKind() != "Scale" || scale.GetAPIVersion() != version {
				t.Errorf("%v, want status %v", scale.Object, want)
			}
			scale.Object["spec"] = map[string]any{"replicas": int64(2)}
			if scaled, err := legacy.put(scale, "scale"); err != nil || scaled.GetAPIVersion() != version || !reflect.DeepEqual(scaled.Object["spec"], map[string]any{"replicas": int64(2)}) {
				t.Fatalf("%v, %v", scaled, err)
			}
			if _, err := legacy.put(scale, "scale"); !apierrors.IsConflict(err) {
				t.Errorf("an old resourceVersion: %v", err)
			}
			if _, err := legacy.patch(name, types.MergePatchType, map[string]any{"spec": map[string]any{"replicas": 3}}, "scale"); err != nil {
				t.Fatal(err)
			}
			now := current.get(name)
			if spec := now.Object["spec"].(map[string]any); spec["replicas"] != int64(3) || now.GetGeneration() != 3 {
				t.Errorf("replicas %v, generation %d", spec["replicas"], now.GetGeneration())
			}
			// The creator still manages its fields, except the replicas.
			owners := map[string]bool{}
			for _, entry := range now.GetManagedFields() {
				owners[entry.APIVersion+" "+strconv.FormatBool(strings.Contains(string(entry.FieldsV1.Raw), "f:replicas"))] = true
			}
			if want := map[string]bool{"extensions/v1beta1 false": true, "apps/v1 true": true}; !reflect.DeepEqual(owners, want) {
				t.Errorf("version and whether it owns the replicas: %v, want %v", owners, want)
			}
		})
	}
}
