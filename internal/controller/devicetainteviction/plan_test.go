package devicetainteviction

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var (
	added = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	now   = added.Add(time.Minute)
)

const (
	noExecute  = resourcev1.DeviceTaintEffectNoExecute
	noSchedule = resourcev1.DeviceTaintEffectNoSchedule
)

func aTaint(effect resourcev1.DeviceTaintEffect) resourcev1.DeviceTaint {
	return resourcev1.DeviceTaint{Key: "example.com/broken", Value: "yes", Effect: effect, TimeAdded: &added}
}

// aSlice returns a slice of the pool node-1 with one device.
func aSlice(generation int64, device string, taints ...resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", Pool: resourcev1.ResourcePool{Name: "node-1", Generation: generation},
		Devices: []resourcev1.Device{{Name: device, Taints: taints}},
	}}
}

func aRule(uid types.UID, effect resourcev1.DeviceTaintEffect, selector *resourcev1.DeviceTaintSelector) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid, Generation: 1},
		Spec:       resourcev1.DeviceTaintRuleSpec{DeviceSelector: selector, Taint: aTaint(effect)},
	}
}

func aPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "ml", UID: "pod"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
}

// aClaim returns a claim of the pod with the device gpu-0.
func aClaim(tolerations ...resourcev1.DeviceToleration) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "ml"},
		Status: resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Driver: "gpu.example.com", Pool: "node-1", Device: "gpu-0", Tolerations: tolerations},
			}}},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "train", UID: "pod"}},
		},
	}
}

func tolerating(effect resourcev1.DeviceTaintEffect, seconds ...int64) resourcev1.DeviceToleration {
	t := resourcev1.DeviceToleration{Key: "example.com/broken", Operator: resourcev1.DeviceTolerationOpExists, Effect: effect}
	if len(seconds) > 0 {
		t.TolerationSeconds = &seconds[0]
	}
	return t
}

// TestPodLeavesForATaintThatItsClaimDoesNotTolerate has one case for each reason to leave or to stay.
func TestPodLeavesForATaintThatItsClaimDoesNotTolerate(t *testing.T) {
	const never = -1
	tainted := Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(1, "gpu-0", aTaint(noExecute))}}
	otherDriver, device := "nic.example.com", "gpu-0"
	for name, test := range map[string]struct {
		cluster Cluster
		pod     func(*corev1.Pod)
		claim   *resourcev1.ResourceClaim
		after   time.Duration // since the taint was added
		rules   []types.UID
	}{
		"a tainted device":               {tainted, nil, aClaim(), 0, nil},
		"no taint":                       {Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(1, "gpu-0")}}, nil, aClaim(), never, nil},
		"a taint of scheduling":          {Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(1, "gpu-0", aTaint(noSchedule))}}, nil, aClaim(), never, nil},
		"another device":                 {Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(1, "gpu-1", aTaint(noExecute))}}, nil, aClaim(), never, nil},
		"a taint of an older generation": {Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(2, "gpu-0"), aSlice(1, "gpu-0", aTaint(noExecute))}}, nil, aClaim(), never, nil},
		"a taint of a newer generation":  {Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(1, "gpu-0"), aSlice(2, "gpu-0", aTaint(noExecute))}}, nil, aClaim(), 0, nil},

		"a toleration":                      {tainted, nil, aClaim(tolerating(noExecute)), never, nil},
		"the longest toleration":            {tainted, nil, aClaim(tolerating(noExecute, math.MaxInt64)), math.MaxInt64 / time.Second * time.Second, nil},
		"a toleration of every effect":      {tainted, nil, aClaim(tolerating("")), never, nil},
		"its seconds do not count":          {tainted, nil, aClaim(tolerating("", 5)), never, nil},
		"a toleration of another effect":    {tainted, nil, aClaim(tolerating(noSchedule)), 0, nil},
		"a toleration for a while":          {tainted, nil, aClaim(tolerating(noExecute, 90)), 90 * time.Second, nil},
		"the shorter of two tolerations":    {tainted, nil, aClaim(tolerating(noExecute, 90), tolerating(noExecute, 30)), 30 * time.Second, nil},
		"a toleration for less than none":   {tainted, nil, aClaim(tolerating(noExecute, -5)), 0, nil},
		"a toleration of another value":     {tainted, nil, aClaim(resourcev1.DeviceToleration{Key: "example.com/broken", Value: "no"}), 0, nil},
		"a toleration of the value":         {tainted, nil, aClaim(resourcev1.DeviceToleration{Key: "example.com/broken", Value: "yes"}), never, nil},
		"a toleration of every key":         {tainted, nil, aClaim(resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}), never, nil},
		"a rule about the device":           {Cluster{Rules: []*resourcev1.DeviceTaintRule{aRule("r", noExecute, &resourcev1.DeviceTaintSelector{Device: &device})}}, nil, aClaim(), 0, []types.UID{"r"}},
		"a rule about every device":         {Cluster{Rules: []*resourcev1.DeviceTaintRule{aRule("r", noExecute, &resourcev1.DeviceTaintSelector{})}}, nil, aClaim(), 0, []types.UID{"r"}},
		"a rule about no device":            {Cluster{Rules: []*resourcev1.DeviceTaintRule{aRule("r", noExecute, nil)}}, nil, aClaim(), never, nil},
		"a rule about another driver":       {Cluster{Rules: []*resourcev1.DeviceTaintRule{aRule("r", noExecute, &resourcev1.DeviceTaintSelector{Driver: &otherDriver})}}, nil, aClaim(), never, nil},
		"a rule without effect":             {Cluster{Rules: []*resourcev1.DeviceTaintRule{aRule("r", resourcev1.DeviceTaintEffectNone, &resourcev1.DeviceTaintSelector{})}}, nil, aClaim(), never, nil},
		"a pod that is not bound":           {tainted, func(p *corev1.Pod) { p.Spec.NodeName = "" }, aClaim(), never, nil},
		"a pod that has ended":              {tainted, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, aClaim(), never, nil},
		"a pod that is being deleted":       {tainted, func(p *corev1.Pod) { p.DeletionTimestamp = &added }, aClaim(), never, nil},
		"a pod that replaced the first one": {tainted, func(p *corev1.Pod) { p.UID = "second" }, aClaim(), never, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := aPod()
			if test.pod != nil {
				test.pod(pod)
			}
			e := test.cluster.Decide(pod, []*resourcev1.ResourceClaim{test.claim}, now)
			switch {
			case e.IsNeeded != (test.after != never):
				t.Fatalf("the pod leaves: %t", e.IsNeeded)
			case e.IsNeeded && !e.At.Equal(added.Add(test.after)):
				t.Errorf("the pod leaves at %v, want %v after %v", e.At, test.after, added)
			}
			if !slices.Equal(e.Rules(), test.rules) {
				t.Errorf("because of the rules %v, want %v", e.Rules(), test.rules)
			}
		})
	}
}

// TestUndatedTaintHasComeNow checks that a driver that does not record when it tainted a device leaves the pod the whole
// time of its toleration.
func TestUndatedTaintHasComeNow(t *testing.T) {
	undated := aTaint(noExecute)
	undated.TimeAdded = nil
	cluster := Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(1, "gpu-0", undated)}}
	e := cluster.Decide(aPod(), []*resourcev1.ResourceClaim{aClaim(tolerating(noExecute, 30))}, now)
	if want := now.Add(30 * time.Second); !e.IsNeeded || !e.At.Equal(want) {
		t.Errorf("%+v, want at %v", e, want)
	}
}

// TestConditionOfARuleSaysWhatItDoes checks the condition EvictionInProgress.
func TestConditionOfARuleSaysWhatItDoes(t *testing.T) {
	for name, test := range map[string]struct {
		effect resourcev1.DeviceTaintEffect
		extent Extent
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"pods leave":    {noExecute, Extent{Pods: 2, Namespaces: 1, Evicted: 1}, "True", "PodsPendingEviction", "2 pods need to be evicted in 1 namespace. 1 pod evicted since starting the controller."},
		"one pod":       {noExecute, Extent{Pods: 1, Namespaces: 1}, "True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."},
		"all have left": {noExecute, Extent{Evicted: 3}, "False", "Completed", "3 pods evicted since starting the controller."},
		"none was met":  {noExecute, Extent{}, "False", "NotStarted", ""},
		"a question": {
			resourcev1.DeviceTaintEffectNone,
			Extent{Published: 1, Allocated: 2, Pods: 3, Namespaces: 2},
			"False", "NoEffect",
			"1 published device selected. 2 allocated devices selected. 3 pods would be evicted in 2 different namespaces if the effect was NoExecute. " +
				"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
		},
		"scheduling": {noSchedule, Extent{}, "False", "OtherEffect", "Eviction only happens for the NoExecute effect."},
	} {
		t.Run(name, func(t *testing.T) {
			c := DecideStatus(aRule("r", test.effect, nil), test.extent)
			if c.Status != test.status || c.Reason != test.reason || c.Message != test.says || c.ObservedGeneration != 1 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestRuleWithoutEffectSelectsAndForetells checks what a rule with the effect None would do.
func TestRuleWithoutEffectSelectsAndForetells(t *testing.T) {
	rule := aRule("r", resourcev1.DeviceTaintEffectNone, &resourcev1.DeviceTaintSelector{})
	cluster := Cluster{Slices: []*resourcev1.ResourceSlice{aSlice(1, "gpu-0"), aSlice(1, "gpu-1")}, Rules: []*resourcev1.DeviceTaintRule{rule}}
	claims := []*resourcev1.ResourceClaim{aClaim()}
	if published, allocated := cluster.Selected(rule, claims); published != 2 || allocated != 1 {
		t.Errorf("%d published and %d allocated devices, want 2 and 1", published, allocated)
	}
	if e := cluster.WithEffect(rule).Decide(aPod(), claims, now); !slices.Equal(e.Rules(), []types.UID{"r"}) {
		t.Errorf("with its effect, the pod would leave because of %v", e.Rules())
	}
	if e := cluster.Decide(aPod(), claims, now); e.IsNeeded {
		t.Error("the pod leaves although the rule has no effect")
	}
	if IsFinal(rule) {
		t.Error("the rule has no condition yet")
	}
	rule.Status.Conditions = []metav1.Condition{DecideStatus(rule, Extent{})}
	if !IsFinal(rule) {
		t.Error("the condition would be written again")
	}
}
