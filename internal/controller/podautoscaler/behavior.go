package podautoscaler

import (
	"math"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// downscaleStabilization is the default window whose highest recommendation counts before pods
// are removed.
const downscaleStabilization = 5 * time.Minute

// Memory is the state of an autoscaler between two syncs.
type Memory struct {
	recommendations []recommendation
	ups, downs      []change // by how much the target was scaled
}

// recommendation is a number of replicas that the metrics called for.
type recommendation struct {
	replicas int32
	at       time.Time
}

// change is the number of replicas by which a target was scaled.
type change struct {
	by int32
	at time.Time
}

func (m Memory) clone() Memory {
	return Memory{slices.Clone(m.recommendations), slices.Clone(m.ups), slices.Clone(m.downs)}
}

// start begins with the current number, so that no pods are removed until the memory is
// complete.
func (m *Memory) start(current int32, now time.Time) {
	if len(m.recommendations) == 0 {
		m.recommendations = []recommendation{{current, now}}
	}
}

// recommend adds a recommendation, and drops the ones that are older than all windows.
func (m *Memory) recommend(replicas int32, now time.Time, window time.Duration) {
	cutoff := now.Add(-window)
	m.recommendations = slices.DeleteFunc(m.recommendations, func(r recommendation) bool { return r.at.Before(cutoff) })
	m.recommendations = append(m.recommendations, recommendation{replicas, now})
}

// scaled remembers a change of the target, if the autoscaler has policies about changes.
func (m *Memory) scaled(b *autoscalingv2.HorizontalPodAutoscalerBehavior, by int32, now time.Time) {
	if b == nil {
		return
	}
	if by > 0 {
		m.ups = append(withoutOld(m.ups, b, now), change{by, now})
	} else {
		m.downs = append(withoutOld(m.downs, b, now), change{-by, now})
	}
}

// withoutOld drops the changes that are older than the periods of all policies.
func withoutOld(changes []change, b *autoscalingv2.HorizontalPodAutoscalerBehavior, now time.Time) []change {
	var longest int32
	for _, rules := range []*autoscalingv2.HPAScalingRules{b.ScaleUp, b.ScaleDown} {
		if rules != nil {
			for _, policy := range rules.Policies {
				longest = max(longest, policy.PeriodSeconds)
			}
		}
	}
	cutoff := now.Add(-seconds(longest))
	return slices.DeleteFunc(changes, func(c change) bool { return c.at.Before(cutoff) })
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// since returns by how many replicas a target was scaled in the last seconds.
func since(changes []change, period int32, now time.Time) int32 {
	cutoff := now.Add(-seconds(period))
	var total int32
	for _, c := range changes {
		if c.at.After(cutoff) {
			total += c.by
		}
	}
	return total
}

// normalize applies the autoscaler's limits and its past to the number of replicas that metrics
// call for.
func (d *decision) normalize(called int32) int32 {
	var stable int32
	var reason, message string
	if d.hpa.Spec.Behavior == nil {
		stable, reason, message = d.stabilizeDown(called)
	} else {
		stable, reason, message = d.stabilize(called)
	}
	if stable == called {
		reason, message = "ReadyForNewScale", "recommended size matches current size"
	}
	d.set(autoscalingv2.AbleToScale, corev1.ConditionTrue, reason, message)
	desired, reason, message := d.limit(stable)
	limited := corev1.ConditionTrue
	if desired == stable {
		limited = corev1.ConditionFalse
	}
	d.set(autoscalingv2.ScalingLimited, limited, reason, message)
	return desired
}

const (
	downReason  = "ScaleDownStabilized"
	downMessage = "recent recommendations were higher than current one, applying the highest recent recommendation"
)

// stabilizeDown applies the default window: its highest recommendation counts.
func (d *decision) stabilizeDown(called int32) (stable int32, reason, message string) {
	stable = called
	cutoff := d.seen.Now.Add(-downscaleStabilization)
	for _, r := range d.Memory.recommendations {
		if !r.at.Before(cutoff) {
			stable = max(stable, r.replicas)
		}
	}
	d.Memory.recommend(called, d.seen.Now, downscaleStabilization)
	return stable, downReason, downMessage
}

// stabilize applies the windows of the autoscaler's behavior: the lowest recommendation in one
// limits scaling up, the highest in the other scaling down.
func (d *decision) stabilize(called int32) (stable int32, reason, message string) {
	b := d.hpa.Spec.Behavior
	upWindow, downWindow := time.Duration(0), downscaleStabilization
	if b.ScaleUp != nil {
		upWindow = seconds(ptr.Deref(b.ScaleUp.StabilizationWindowSeconds, 0))
	}
	if b.ScaleDown != nil && b.ScaleDown.StabilizationWindowSeconds != nil {
		downWindow = seconds(*b.ScaleDown.StabilizationWindowSeconds)
	}
	lowest, highest := called, called
	for _, r := range d.Memory.recommendations {
		if r.at.After(d.seen.Now.Add(-upWindow)) {
			lowest = min(lowest, r.replicas)
		}
		if r.at.After(d.seen.Now.Add(-downWindow)) {
			highest = max(highest, r.replicas)
		}
	}
	d.Memory.recommend(called, d.seen.Now, max(upWindow, downWindow))
	current := d.seen.Scale.Spec.Replicas
	stable = min(max(current, lowest), highest)
	if called >= current {
		return stable, "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"
	}
	return stable, downReason, downMessage
}

// limit applies the minimum, the maximum and the rate of change.
func (d *decision) limit(wanted int32) (desired int32, reason, message string) {
	current, least, most := d.seen.Scale.Spec.Replicas, minReplicas(d.hpa), d.hpa.Spec.MaxReplicas
	upReason, upMessage := "TooManyReplicas", "the desired replica count is more than the maximum replica count"
	if rate := d.fastest(current); rate < most {
		most, upReason, upMessage = rate, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
	}
	downReason, downMessage := "TooFewReplicas", "the desired replica count is less than the minimum replica count"
	if rate := d.slowest(current); rate > least {
		least, downReason, downMessage = rate, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
	}
	// With behavior, each limit counts only in its direction.
	eitherWay := d.hpa.Spec.Behavior == nil
	switch {
	case wanted < least && (eitherWay || wanted < current):
		return least, downReason, downMessage
	case wanted > most && (eitherWay || wanted > current):
		return most, upReason, upMessage
	}
	return wanted, "DesiredWithinRange", "the desired count is within the acceptable range"
}

// fastest returns the number of replicas that a target may be scaled up to now: according to
// the behavior's policies, or by default twice as many, and at least four.
func (d *decision) fastest(current int32) int32 {
	if d.hpa.Spec.Behavior == nil {
		return int32(min(max(2*int64(current), 4), math.MaxInt32))
	}
	return max(current, d.allowed(d.hpa.Spec.Behavior.ScaleUp, current, 1))
}

// slowest returns the number of replicas that a target may be scaled down to now.
func (d *decision) slowest(current int32) int32 {
	if d.hpa.Spec.Behavior == nil {
		return 0
	}
	return min(current, d.allowed(d.hpa.Spec.Behavior.ScaleDown, current, -1))
}

// allowed returns the number of replicas that the policies allow in a direction, 1 or -1: by
// the policy that allows the most change, or the least if the behavior selects that.
func (d *decision) allowed(rules *autoscalingv2.HPAScalingRules, current int32, direction int32) int32 {
	if rules == nil || len(rules.Policies) == 0 {
		return current
	}
	choose := ptr.Deref(rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if choose == autoscalingv2.DisabledPolicySelect {
		return current
	}
	var proposals []int32
	for _, policy := range rules.Policies {
		now := d.seen.Now
		before := current - since(d.Memory.ups, policy.PeriodSeconds, now) + since(d.Memory.downs, policy.PeriodSeconds, now)
		proposals = append(proposals, by(policy, before, direction))
	}
	if (choose == autoscalingv2.MinChangePolicySelect) == (direction > 0) {
		return slices.Min(proposals)
	}
	return slices.Max(proposals)
}

// by returns how many replicas a policy allows, given their number when its period began. A
// percentage adds at least one.
func by(policy autoscalingv2.HPAScalingPolicy, before, direction int32) int32 {
	if policy.Type == autoscalingv2.PodsScalingPolicy {
		return int32(max(min(int64(before)+int64(direction)*int64(policy.Value), math.MaxInt32), math.MinInt32))
	}
	n := float64(before) * (1 + float64(direction)*float64(policy.Value)/100)
	if direction > 0 {
		return ceiling(n)
	}
	return int32(n)
}
