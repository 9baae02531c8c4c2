package devicetainteviction

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Extent has the numbers of devices and pods that a rule selects.
type Extent struct {
	// Published and Allocated are the numbers of selected devices that a driver publishes, and that a claim has.
	Published, Allocated int
	// Pods and Namespaces are the numbers of pods that have to leave because of the rule, or would have to if its
	// effect were NoExecute, and of their namespaces.
	Pods, Namespaces int
	// Evicted is the number of pods that this process has evicted because of the rule.
	Evicted int
}

// WithEffect returns the cluster as it would be if a rule had the effect NoExecute.
func (c Cluster) WithEffect(rule *resourcev1.DeviceTaintRule) Cluster {
	supposed := rule.DeepCopy()
	supposed.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	rules := []*resourcev1.DeviceTaintRule{supposed}
	for _, other := range c.Rules {
		if other.UID != rule.UID {
			rules = append(rules, other)
		}
	}
	return Cluster{Slices: c.Slices, Rules: rules}
}

// Selected returns the numbers of published and allocated devices that a rule selects.
func (c Cluster) Selected(rule *resourcev1.DeviceTaintRule, claims []*resourcev1.ResourceClaim) (published, allocated int) {
	type poolID struct{ driver, name string }
	pools := map[poolID]bool{}
	for _, s := range c.Slices {
		id := poolID{s.Spec.Driver, s.Spec.Pool.Name}
		if pools[id] {
			continue
		}
		pools[id] = true
		for _, slice := range c.pool(id.driver, id.name) {
			for _, device := range slice.Spec.Devices {
				if selects(rule, id.driver, id.name, device.Name) {
					published++
				}
			}
		}
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, d := range claim.Status.Allocation.Devices.Results {
			if selects(rule, d.Driver, d.Pool, d.Device) {
				allocated++
			}
		}
	}
	return published, allocated
}

// IsFinal reports whether the condition of a rule stays as it is. A rule that ends no pods gets its condition once for
// each change of its spec.
func IsFinal(rule *resourcev1.DeviceTaintRule) bool {
	c := conditionOf(rule)
	return c != nil && c.ObservedGeneration == rule.Generation && rule.Spec.Taint.Effect != resourcev1.DeviceTaintEffectNoExecute
}

func conditionOf(rule *resourcev1.DeviceTaintRule) *metav1.Condition {
	return meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
}

// DecideStatus returns the condition EvictionInProgress of a rule, in the words of Kubernetes. Each change of it, also of
// its message, counts as a transition, so that it shows when it was written.
func DecideStatus(rule *resourcev1.DeviceTaintRule, e Extent) metav1.Condition {
	c := metav1.Condition{
		Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse, ObservedGeneration: rule.Generation,
	}
	var sentences []string
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		switch {
		case e.Pods > 0:
			c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			sentences = append(sentences, fmt.Sprintf("%s to be evicted in %s.",
				numbered(e.Pods, "pod needs", "pods need"), numbered(e.Namespaces, "namespace", "different namespaces")))
		case e.Evicted > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
	case resourcev1.DeviceTaintEffectNone:
		c.Reason = "NoEffect"
		sentences = append(sentences,
			numbered(e.Published, "published device", "published devices")+" selected.",
			numbered(e.Allocated, "allocated device", "allocated devices")+" selected.",
			fmt.Sprintf("%s would be evicted in %s if the effect was NoExecute.",
				numbered(e.Pods, "pod", "pods"), numbered(e.Namespaces, "namespace", "different namespaces")),
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.")
	default:
		c.Reason = "OtherEffect"
		sentences = append(sentences, "Eviction only happens for the NoExecute effect.")
	}
	if e.Evicted > 0 {
		sentences = append(sentences, numbered(e.Evicted, "pod", "pods")+" evicted since starting the controller.")
	}
	c.Message = strings.Join(sentences, " ")
	return c
}

// numbered returns a number with its noun.
func numbered(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
