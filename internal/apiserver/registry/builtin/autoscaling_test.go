package builtin

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const scaledByMuch = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default, annotations: {mine: stays}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 5
  metrics:
  - {type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 100Mi}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: a, target: {type: Utilization, averageUtilization: 50}}}
  - {type: Pods, pods: {metric: {name: requests, selector: {matchLabels: {a: b}}}, target: {type: AverageValue, averageValue: "7"}}}
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: hits}, target: {type: Value, value: "9"}}}
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: hits}, target: {type: AverageValue, averageValue: "9"}}}
  - {type: External, external: {metric: {name: queue}, target: {type: Value, value: "30"}}}
  - {type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: "3"}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 0, selectPolicy: Max, policies: [{type: Pods, value: 1, periodSeconds: 60}]}
    scaleDown: {selectPolicy: Disabled, tolerance: 100m, policies: [{type: Percent, value: 10, periodSeconds: 15}]}
status:
  currentReplicas: 3
  desiredReplicas: 4
  observedGeneration: 6
  lastScaleTime: "2026-07-01T12:00:00Z"
  currentMetrics:
  - {type: Resource, resource: {name: cpu, current: {averageUtilization: 60, averageValue: 10m}}}
  - {type: ContainerResource, containerResource: {name: cpu, container: a, current: {averageUtilization: 60, averageValue: 10m}}}
  - {type: Pods, pods: {metric: {name: requests}, current: {averageValue: "7"}}}
  - {type: Object, object: {describedObject: {kind: Ingress, name: i}, metric: {name: hits}, current: {value: "9", averageValue: "1"}}}
  - {type: External, external: {metric: {name: queue}, current: {value: "9", averageValue: "3"}}}
  conditions: [{type: AbleToScale, status: "True", reason: Ready, message: m, lastTransitionTime: "2026-07-01T12:00:00Z"}]
`

// TestAutoscalersInV1 checks that autoscaling/v1 has one metric of its own, and all other fields in annotations that
// convert back unchanged.
func TestAutoscalersInV1(t *testing.T) {
	schemes := NewSchemes()
	_, obj := decode(t, schemes, scaledByMuch)
	whole := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	whole.TypeMeta = metav1.TypeMeta{}
	v1 := inPeer(t, schemes, whole.DeepCopy(), autoscalingv1.SchemeGroupVersion).(*autoscalingv1.HorizontalPodAutoscaler)
	if *v1.Spec.TargetCPUUtilizationPercentage != 70 || *v1.Status.CurrentCPUUtilizationPercentage != 60 || v1.Spec.MaxReplicas != 5 || v1.Status.DesiredReplicas != 4 {
		t.Errorf("%+v %+v", v1.Spec, v1.Status)
	}
	const prefix = "autoscaling.alpha.kubernetes.io/"
	if len(v1.Annotations) != 5 || v1.Annotations["mine"] != "stays" {
		t.Errorf("annotations %v", v1.Annotations)
	}
	behavior := `{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":60}],"Tolerance":null},` +
		`"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Disabled","Policies":[{"Type":"Percent","Value":10,"PeriodSeconds":15}],"Tolerance":"100m"}}`
	if diff := cmp.Diff(behavior, v1.Annotations[prefix+"behavior"]); diff != "" {
		t.Errorf("behavior (-want +got):\n%s", diff)
	}
	back := inRow(t, schemes, v1, "autoscaling").(*autoscalingv2.HorizontalPodAutoscaler)
	back.TypeMeta = metav1.TypeMeta{}
	if !equality.Semantic.DeepEqual(whole, back) {
		t.Errorf("comes back changed (-sent +got):\n%s", cmp.Diff(whole, back))
	}
}

// TestAutoscalersFromV1 checks missing fields and unreadable annotations from a client of autoscaling/v1.
func TestAutoscalersFromV1(t *testing.T) {
	schemes := NewSchemes()
	for name, test := range map[string]struct {
		annotations, spec string
		want              string // the metrics as YAML
	}{
		"nothing":    {"{}", "", "- resource: {name: cpu, target: {averageUtilization: 80, type: Utilization}}\n  type: Resource"},
		"percentage": {"{}", ", targetCPUUtilizationPercentage: 30", "- resource: {name: cpu, target: {averageUtilization: 30, type: Utilization}}\n  type: Resource"},
		"unreadable": {"{autoscaling.alpha.kubernetes.io/metrics: nonsense}", "", "- resource: {name: cpu, target: {averageUtilization: 80, type: Utilization}}\n  type: Resource"},
		"kept": {
			`{autoscaling.alpha.kubernetes.io/metrics: '[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":40}}]'}`, "",
			"- resource: {name: memory, target: {averageUtilization: 40, type: Utilization}}\n  type: Resource",
		},
	} {
		t.Run(name, func(t *testing.T) {
			json, err := yaml.YAMLToJSONStrict([]byte(`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a, annotations: ` + test.annotations +
				`}, spec: {scaleTargetRef: {kind: Deployment, name: a}, maxReplicas: 3` + test.spec + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			obj, _, err := schemes.Codecs.UniversalDecoder().Decode(json, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := obj.(*autoscalingv2.HorizontalPodAutoscaler)
			var want []autoscalingv2.MetricSpec
			if err := yaml.UnmarshalStrict([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.Spec.Metrics); diff != "" || *got.Spec.MinReplicas != 1 || len(got.Annotations) != 0 {
				t.Errorf("%d replicas, annotations %v, metrics (-want +got):\n%s", *got.Spec.MinReplicas, got.Annotations, diff)
			}
		})
	}
}

// TestBehaviorFromV1 checks that the behavior in an annotation gets its defaults when the stored object is read, so
// that an update in v1 without them changes the object.
func TestBehaviorFromV1(t *testing.T) {
	schemes := NewSchemes()
	sent, err := yaml.YAMLToJSONStrict([]byte(`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a, annotations: {
		autoscaling.alpha.kubernetes.io/behavior: '{"ScaleDown":{"Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":10}]}}'}},
		spec: {scaleTargetRef: {kind: Deployment, name: a}, maxReplicas: 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	obj, _, err := schemes.Codecs.UniversalDecoder().Decode(sent, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b := obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec.Behavior; b == nil || b.ScaleUp != nil || b.ScaleDown == nil || b.ScaleDown.SelectPolicy != nil {
		t.Errorf("the behavior that was sent: %+v", b)
	}
	kept, err := runtime.Encode(schemes.Codecs.LegacyCodec(autoscalingv2.SchemeGroupVersion), obj)
	if err != nil {
		t.Fatal(err)
	}
	if obj, _, err = schemes.Codecs.UniversalDecoder().Decode(kept, nil, nil); err != nil {
		t.Fatal(err)
	}
	if b := obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec.Behavior; b == nil || b.ScaleUp == nil || b.ScaleDown == nil || b.ScaleDown.SelectPolicy == nil {
		t.Errorf("the behavior that is read: %+v", b)
	}
}
