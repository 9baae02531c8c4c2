package podautoscaler

import (
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

func rules(window int32, choose autoscalingv2.ScalingPolicySelect, policies ...autoscalingv2.HPAScalingPolicy) *autoscalingv2.HPAScalingRules {
	return &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window, SelectPolicy: &choose, Policies: policies}
}

func byPods(n, period int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: period}
}

func byPercent(n, period int32) autoscalingv2.HPAScalingPolicy {
	return autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: n, PeriodSeconds: period}
}

// ago is a time before the epoch, in seconds.
func ago(n int) time.Time { return epoch.Add(-time.Duration(n) * time.Second) }

const (
	most, least, never = autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect

	inRange    = "-DesiredWithinRange"
	tooFast    = "ScaleUpLimit"
	tooQuick   = "ScaleDownLimit"
	unhindered = "ReadyForNewScale"
)

// TestBehaviorLimitsTheRecommendation: the effect of limits and the past on a recommendation, for a target of ten.
func TestBehaviorLimitsTheRecommendation(t *testing.T) {
	none := rules(0, most, byPercent(100, 15))
	for name, test := range map[string]struct {
		up, down *autoscalingv2.HPAScalingRules // nil: there is no behavior
		memory   Memory
		called   int32
		want     int32
		able     string
		limited  string
	}{
		"as called":                      {called: 12, want: 12, able: unhindered, limited: inRange},
		"twice as many at most":          {called: 30, want: 20, able: unhindered, limited: "TooManyReplicas"},
		"two at least":                   {called: 1, want: 2, able: unhindered, limited: "TooFewReplicas"},
		"the highest recently":           {memory: Memory{recommendations: []recommendation{{8, ago(299)}, {4, ago(10)}}}, called: 5, want: 8, able: downReason, limited: inRange},
		"the highest, too long ago":      {memory: Memory{recommendations: []recommendation{{8, ago(301)}, {4, ago(10)}}}, called: 5, want: 5, able: unhindered, limited: inRange},
		"up by pods":                     {up: rules(0, most, byPods(3, 60)), down: none, called: 19, want: 13, able: unhindered, limited: tooFast},
		"up by percent, rounded up":      {up: rules(0, most, byPercent(11, 60)), down: none, called: 19, want: 12, able: unhindered, limited: tooFast},
		"up by the larger":               {up: rules(0, most, byPods(3, 60), byPercent(50, 60)), down: none, called: 19, want: 15, able: unhindered, limited: tooFast},
		"up by the smaller":              {up: rules(0, least, byPods(3, 60), byPercent(50, 60)), down: none, called: 19, want: 13, able: unhindered, limited: tooFast},
		"never up":                       {up: rules(0, never, byPods(3, 60)), down: none, called: 19, want: 10, able: unhindered, limited: tooFast},
		"up, some were added":            {up: rules(0, most, byPods(3, 60)), down: none, memory: Memory{ups: []change{{2, ago(59)}, {5, ago(61)}}}, called: 19, want: 11, able: unhindered, limited: tooFast},
		"up, some were removed":          {up: rules(0, most, byPods(3, 60)), down: none, memory: Memory{downs: []change{{2, ago(10)}}}, called: 19, want: 15, able: unhindered, limited: tooFast},
		"up, too many were added":        {up: rules(0, most, byPods(3, 60)), down: none, memory: Memory{ups: []change{{7, ago(10)}}}, called: 19, want: 10, able: unhindered, limited: tooFast},
		"up to the maximum":              {up: rules(0, most, byPods(30, 60)), down: none, called: 40, want: 20, able: unhindered, limited: "TooManyReplicas"},
		"up, the lowest recently":        {up: rules(60, most, byPods(30, 60)), down: none, memory: Memory{recommendations: []recommendation{{12, ago(59)}, {11, ago(61)}}}, called: 15, want: 12, able: "ScaleUpStabilized", limited: inRange},
		"up, fewer were called for":      {up: rules(60, most, byPods(30, 60)), down: none, memory: Memory{recommendations: []recommendation{{7, ago(30)}}}, called: 15, want: 10, able: "ScaleUpStabilized", limited: inRange},
		"down by pods":                   {up: none, down: rules(0, most, byPods(3, 60)), called: 4, want: 7, able: unhindered, limited: tooQuick},
		"down by percent, rounded down":  {up: none, down: rules(0, most, byPercent(11, 60)), called: 4, want: 8, able: unhindered, limited: tooQuick},
		"down by the larger":             {up: none, down: rules(0, most, byPods(3, 60), byPercent(50, 60)), called: 4, want: 5, able: unhindered, limited: tooQuick},
		"down by the smaller":            {up: none, down: rules(0, least, byPods(3, 60), byPercent(50, 60)), called: 4, want: 7, able: unhindered, limited: tooQuick},
		"never down":                     {up: none, down: rules(0, never, byPods(3, 60)), called: 4, want: 10, able: unhindered, limited: tooQuick},
		"down, some were removed":        {up: none, down: rules(0, most, byPods(3, 60)), memory: Memory{downs: []change{{2, ago(10)}}}, called: 4, want: 9, able: unhindered, limited: tooQuick},
		"down to the minimum":            {up: none, down: rules(0, most, byPods(30, 60)), called: 1, want: 2, able: unhindered, limited: "TooFewReplicas"},
		"down, the highest recently":     {up: none, down: rules(60, most, byPods(30, 60)), memory: Memory{recommendations: []recommendation{{8, ago(59)}, {9, ago(61)}}}, called: 4, want: 8, able: downReason, limited: inRange},
		"down, no window is the usual":   {up: none, down: &autoscalingv2.HPAScalingRules{Policies: none.Policies}, memory: Memory{recommendations: []recommendation{{8, ago(299)}}}, called: 4, want: 8, able: downReason, limited: inRange},
		"down, after the usual window":   {up: none, down: &autoscalingv2.HPAScalingRules{Policies: none.Policies}, memory: Memory{recommendations: []recommendation{{8, ago(301)}}}, called: 4, want: 4, able: unhindered, limited: inRange},
		"behavior, but nothing to do":    {up: none, down: none, called: 10, want: 10, able: unhindered, limited: inRange},
		"limits count in one direction":  {up: rules(0, never), down: none, called: 4, want: 4, able: unhindered, limited: inRange},
		"with rules for none: no change": {up: &autoscalingv2.HPAScalingRules{}, down: none, called: 12, want: 10, able: unhindered, limited: tooFast},
	} {
		t.Run(name, func(t *testing.T) {
			hpa := anHPA(ofObject(each("1")))
			if test.up != nil {
				hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: test.up, ScaleDown: test.down}
			}
			if len(test.memory.recommendations) == 0 { // something that no longer counts
				test.memory.recommendations = []recommendation{{10, ago(3600)}}
			}
			plan := Decide(hpa, Observed{Scale: scaleOf(10), Readings: []Reading{{Value: int64(test.called) * 1000}}, Now: epoch, Memory: test.memory})
			limited := plan.Status.Conditions[2].Reason
			if plan.Status.Conditions[2].Status == "False" {
				limited = "-" + limited
			}
			if plan.Status.DesiredReplicas != test.want || plan.Status.Conditions[0].Reason != test.able || limited != test.limited {
				t.Errorf("%d %s %s, want %d %s %s", plan.Status.DesiredReplicas, plan.Status.Conditions[0].Reason, limited, test.want, test.able, test.limited)
			}
			if (plan.Replicas != nil) != (test.want != 10) {
				t.Errorf("replicas are set: %t", plan.Replicas != nil)
			}
		})
	}
}

// TestRecommendationsAreRememberedWhileTheyCount: recommendations and changes are remembered for as long as they count, and no longer;
// a plan does not change the memory that it was made from.
func TestRecommendationsAreRememberedWhileTheyCount(t *testing.T) {
	hpa := anHPA(ofObject(each("1")))
	hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(0, most, byPods(1, 60)), ScaleDown: rules(120, most, byPods(1, 30))}
	memory, now, replicas := Memory{}, epoch, int32(3)
	for i := range 100 {
		seen := Observed{Scale: scaleOf(replicas), Readings: []Reading{{Value: 40_000}}, Now: now, Memory: memory}
		before := len(memory.recommendations)
		plan := Decide(hpa, seen)
		if len(memory.recommendations) != before {
			t.Fatal("the memory has changed")
		}
		if plan.Replicas != nil {
			plan = Scaled(hpa, plan, nil, now)
			replicas = *plan.Replicas
		}
		memory, now = plan.Memory, now.Add(15*time.Second)
		if len(memory.recommendations) > 10 || len(memory.ups) > 2 {
			t.Fatalf("after %d syncs: %d recommendations, %d changes", i, len(memory.recommendations), len(memory.ups))
		}
	}
	// One pod a minute, in 25 minutes, up to the maximum.
	if replicas != 20 {
		t.Errorf("%d replicas", replicas)
	}
}

// TestToleranceOfTheSpecReplacesTheUsualOne: the spec's tolerance replaces the usual one, in its direction.
func TestToleranceOfTheSpecReplacesTheUsualOne(t *testing.T) {
	for name, test := range map[string]struct {
		value int64
		want  int32
	}{"up": {103_000, 11}, "hardly up": {101_000, 10}, "down": {91_000, 10}} {
		t.Run(name, func(t *testing.T) {
			hpa := anHPA(ofObject(each("10")))
			up := rules(0, most, byPods(30, 60))
			up.Tolerance = new(resource.MustParse("0.02"))
			hpa.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: up, ScaleDown: rules(0, most, byPods(30, 60))}
			plan := Decide(hpa, Observed{Scale: scaleOf(10), Readings: []Reading{{Value: test.value}}, Now: epoch})
			if plan.Status.DesiredReplicas != test.want {
				t.Errorf("%d, want %d", plan.Status.DesiredReplicas, test.want)
			}
		})
	}
}
