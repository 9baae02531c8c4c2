// Package devicetainteviction deletes the pods that use a device with a taint that they do not tolerate. Drivers taint
// devices in their ResourceSlices, and administrators by DeviceTaintRules.
//
//	pod, its claims, the taints of their devices ──▶ Decide: whether and when the pod has to leave
//	rule, the devices and pods that it is about ──▶ DecideStatus: its condition EvictionInProgress
//
// Only the effect NoExecute ends pods, and only of pods that are bound to a node and for which a claim is reserved. A
// toleration of a claim's request is copied into the allocation of its devices.
package devicetainteviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Taint is a taint with the effect NoExecute, and the one who has added it: a driver in a slice, or a rule.
type Taint struct {
	resourcev1.DeviceTaint
	Slice *resourcev1.ResourceSlice
	Rule  *resourcev1.DeviceTaintRule
}

// Cluster has all slices and all rules: they say which devices are tainted.
type Cluster struct {
	Slices []*resourcev1.ResourceSlice
	Rules  []*resourcev1.DeviceTaintRule
}

// Taints returns the taints of an allocated device that end pods.
func (c Cluster) Taints(device resourcev1.DeviceRequestAllocationResult) []Taint {
	var all []Taint
	for _, slice := range c.pool(device.Driver, device.Pool) {
		for _, published := range slice.Spec.Devices {
			if published.Name != device.Device {
				continue
			}
			for _, taint := range published.Taints {
				if taint.Effect == resourcev1.DeviceTaintEffectNoExecute {
					all = append(all, Taint{DeviceTaint: taint, Slice: slice})
				}
			}
		}
	}
	for _, rule := range c.Rules {
		if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute && selects(rule, device.Driver, device.Pool, device.Device) {
			all = append(all, Taint{DeviceTaint: rule.Spec.Taint, Rule: rule})
		}
	}
	return all
}

// pool returns the slices of a pool. Slices of an older generation do not count: their driver is about to replace them.
func (c Cluster) pool(driver, name string) []*resourcev1.ResourceSlice {
	var current []*resourcev1.ResourceSlice
	for _, s := range c.Slices {
		if s.Spec.Driver != driver || s.Spec.Pool.Name != name {
			continue
		}
		if len(current) > 0 {
			switch newest := current[0].Spec.Pool.Generation; {
			case s.Spec.Pool.Generation < newest:
				continue
			case s.Spec.Pool.Generation > newest:
				current = nil
			}
		}
		current = append(current, s)
	}
	return current
}

// selects reports whether a rule is about a device. A rule without a selector is about none.
func selects(rule *resourcev1.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	return s != nil && ptr.Deref(s.Driver, driver) == driver && ptr.Deref(s.Pool, pool) == pool && ptr.Deref(s.Device, device) == device
}

// Eviction is whether and when a pod has to leave, and the taints that it does not tolerate for ever.
type Eviction struct {
	IsNeeded bool
	At       time.Time
	Taints   []Taint
}

// Rules returns the UIDs of the rules among the reasons.
func (e Eviction) Rules() []types.UID {
	var rules []types.UID
	for _, taint := range e.Taints {
		if taint.Rule != nil && !slices.Contains(rules, taint.Rule.UID) {
			rules = append(rules, taint.Rule.UID)
		}
	}
	return rules
}

// Decide decides about a pod and its claims. A claim counts if it is allocated and reserved for the pod. A taint without
// a time was added now.
func (c Cluster) Decide(pod *corev1.Pod, claims []*resourcev1.ResourceClaim, now time.Time) Eviction {
	var e Eviction
	if pod.Spec.NodeName == "" || pods.IsTerminating(pod) || pods.IsFinished(pod) {
		return e
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil || !isReservedFor(claim, pod) {
			continue
		}
		for _, device := range claim.Status.Allocation.Devices.Results {
			for _, taint := range c.Taints(device) {
				e.join(taint, device.Tolerations, now)
			}
		}
	}
	return e
}

// join adds a taint to the reasons, unless the pod tolerates it for ever.
func (e *Eviction) join(taint Taint, tolerations []resourcev1.DeviceToleration, now time.Time) {
	at, isBounded := toleratedUntil(taint.DeviceTaint, tolerations, now)
	if !isBounded {
		return
	}
	if !e.IsNeeded || at.Before(e.At) {
		e.IsNeeded, e.At = true, at
	}
	e.Taints = append(e.Taints, taint)
}

func isReservedFor(claim *resourcev1.ResourceClaim, pod *corev1.Pod) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return r.APIGroup == "" && r.Resource == "pods" && r.UID == pod.UID
	})
}

// toleratedUntil returns the time until which a taint is tolerated: for ever if the second result is false. The shortest
// of several tolerations counts, unless one of them has no limit.
func toleratedUntil(taint resourcev1.DeviceTaint, tolerations []resourcev1.DeviceToleration, now time.Time) (time.Time, bool) {
	since := ptr.Deref(taint.TimeAdded, metav1.NewTime(now)).Time
	var shortest *int64
	for _, t := range tolerations {
		if !tolerates(t, taint) {
			continue
		}
		if t.TolerationSeconds == nil || t.Effect == "" { // without an effect, the seconds do not count
			return time.Time{}, false
		}
		if shortest == nil || *t.TolerationSeconds < *shortest {
			shortest = t.TolerationSeconds
		}
	}
	return since.Add(pods.Seconds(ptr.Deref(shortest, 0))), true
}

// tolerates reports whether a toleration matches a taint with the effect NoExecute.
func tolerates(t resourcev1.DeviceToleration, taint resourcev1.DeviceTaint) bool {
	switch {
	case t.Effect != "" && t.Effect != resourcev1.DeviceTaintEffectNoExecute, t.Key != "" && t.Key != taint.Key:
		return false
	case t.Operator == resourcev1.DeviceTolerationOpExists:
		return true
	default:
		return t.Value == taint.Value
	}
}
