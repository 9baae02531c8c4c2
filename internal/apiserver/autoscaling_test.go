package apiserver_test

import (
	"net/http"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// autoscaling/v1 and v2 have the same objects: fields that only v2 has survive a write in v1.
func TestAutoscalersOfBothVersions(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	in := func(version string, content map[string]any) collection {
		return s.collection(t, gvk("autoscaling", version, "HorizontalPodAutoscaler"), "horizontalpodautoscalers", namespace, content)
	}
	target := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
	old := in("v1", map[string]any{"spec": map[string]any{"scaleTargetRef": target, "maxReplicas": int64(3), "targetCPUUtilizationPercentage": int64(70)}})
	current := in("v2", map[string]any{"spec": map[string]any{
		"scaleTargetRef": target, "maxReplicas": int64(3), "behavior": map[string]any{"scaleDown": map[string]any{"selectPolicy": "Disabled"}},
		"metrics": []any{map[string]any{"type": "Resource", "resource": map[string]any{"name": "memory", "target": map[string]any{"type": "AverageValue", "averageValue": "1Gi"}}}},
	}})
	created := old.create("a")
	if spec := current.get("a").Object["spec"].(map[string]any); len(spec["metrics"].([]any)) != 1 || spec["minReplicas"] != int64(1) {
		t.Errorf("in v2: %v", spec)
	}
	before := current.create("b").Object["spec"]
	if _, err := old.patch("b", types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}); err != nil {
		t.Fatal(err)
	}
	after := current.get("b")
	if !reflect.DeepEqual(before, after.Object["spec"]) || after.GetLabels()["a"] != "b" || len(after.GetAnnotations()) != 0 {
		t.Errorf("after a write in v1: %v", after.Object)
	}
	status := map[string]any{"status": map[string]any{"currentReplicas": 2, "desiredReplicas": 2, "currentCPUUtilizationPercentage": 50}}
	if _, err := old.patch("a", types.MergePatchType, status, "status"); err != nil {
		t.Fatal(err)
	}
	measured := current.get("a").Object["status"].(map[string]any)
	if measured["currentReplicas"] != int64(2) || len(measured["currentMetrics"].([]any)) != 1 {
		t.Errorf("status in v2: %v", measured)
	}
	applied := old.named("a")
	applied.SetLabels(map[string]string{"applied": "yes"})
	if _, err := old.send(http.MethodPatch, old.at("a")+"?fieldManager=test&force=true", "application/apply-patch+yaml", applied); err != nil {
		t.Fatal(err)
	}
	events := old.watch(created.GetResourceVersion())
	if e := next(t, events); e.Object.GetAPIVersion() != "autoscaling/v1" {
		t.Errorf("watch: %v", e.Object)
	}
	old.mustRemove("a", nil)
	if current.get("a") != nil {
		t.Error("it is still there")
	}
}
