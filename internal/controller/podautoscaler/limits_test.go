package podautoscaler

import (
	"math"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// The largest policies are as good as none.
func TestLargestPolicies(t *testing.T) {
	for name, policy := range map[string]autoscalingv2.HPAScalingPolicy{
		"pods": byPods(math.MaxInt32, math.MaxInt32), "percent": byPercent(math.MaxInt32, math.MaxInt32),
	} {
		for _, size := range []int32{1, 1000, 1_999_999_999, math.MaxInt32} {
			if up := by(policy, size, 1); up < 20_000_000 || up < size {
				t.Errorf("%s: from %d up to %d", name, size, up)
			}
			if down := by(policy, size, -1); down > 0 {
				t.Errorf("%s: from %d down to %d", name, size, down)
			}
		}
	}
}

func TestLargestAutoscaler(t *testing.T) {
	const largest = math.MaxInt32
	for name, test := range map[string]struct {
		current, want int32
		reading       int64
	}{
		"up":   {2_000_000_000, largest, math.MaxInt64},
		"down": {largest, largest - 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			hpa := anHPA(ofObject(each("1")))
			hpa.Spec.MinReplicas, hpa.Spec.MaxReplicas = new(int32(largest-1)), largest
			if test.want == largest {
				hpa.Spec.MinReplicas = new(int32(1))
			}
			policies := []autoscalingv2.HPAScalingPolicy{byPods(largest, largest), byPercent(largest, largest)}
			hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(0, most, policies...), ScaleDown: rules(0, least, policies...)}
			plan := Decide(hpa, Observed{Scale: scaleOf(test.current), Readings: []Reading{{Value: test.reading}}, Now: epoch})
			if plan.Status.DesiredReplicas != test.want {
				t.Errorf("%d replicas, want %d: %s", plan.Status.DesiredReplicas, test.want, text(plan))
			}
		})
	}
}

// A hundred pods with a TiB of memory each, in thousandths of a byte.
func TestUtilizationOfManyLargePods(t *testing.T) {
	values, requests := map[string]int64{}, map[string]int64{}
	for _, pod := range pods(100) {
		values[pod.Name], requests[pod.Name] = 1000<<40, 2000<<40
	}
	if percent, average, err := utilization(values, requests); percent != 50 || average != 1000<<40 || err != nil {
		t.Errorf("%d%%, %d each: %v", percent, average, err)
	}
}
