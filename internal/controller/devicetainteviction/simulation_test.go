package devicetainteviction

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// simulation has pods that use one device each, a scheduler, a driver that taints its devices, an administrator with
// rules, and a node on which pods end.
type simulation struct {
	*laggingcache.Cluster
	choose histories.Choose
	broken string
}

func newSimulation(t *rapid.T) *simulation {
	choose := histories.Choices(t)
	var made []*controller.Controller
	c, err := laggingcache.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), choose,
		func(shared *controller.Context) (_ *controller.Controller, err error) {
			if made, err = Controllers(shared); err != nil {
				return nil, err
			}
			return made[0], nil
		},
		func(*controller.Context) (*controller.Controller, error) { return made[1], nil })
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{Cluster: c, choose: choose}
	c.Watch = s.watch
	for range choose(10) {
		s.Disturb()
	}
	return s
}

func (s *simulation) pods() []*corev1.Pod { return laggingcache.All[*corev1.Pod](s.Cluster, "pods") }

func (s *simulation) claims() []*resourcev1.ResourceClaim {
	return laggingcache.All[*resourcev1.ResourceClaim](s.Cluster, "resourceclaims")
}

// watch checks a deletion by the controller: on the server, at this moment, the pod must have a reason to leave.
func (s *simulation) watch(verb string, obj runtime.Object) {
	pod, ok := obj.(*corev1.Pod)
	if verb != "delete" || !ok {
		return
	}
	var stored Cluster
	var claims []*resourcev1.ResourceClaim
	laggingcache.Each(s.Cluster, "resourceslices", func(x *resourcev1.ResourceSlice) { stored.Slices = append(stored.Slices, x) })
	laggingcache.Each(s.Cluster, "devicetaintrules", func(x *resourcev1.DeviceTaintRule) { stored.Rules = append(stored.Rules, x) })
	laggingcache.Each(s.Cluster, "resourceclaims", func(x *resourcev1.ResourceClaim) { claims = append(claims, x) })
	if e := stored.Decide(pod, claims, s.Clock.Now()); !e.IsNeeded || e.At.After(s.Clock.Now()) {
		s.broken = fmt.Sprintf("%s is deleted without a reason: %+v", pod.Name, e)
	}
}

// Disturb implements laggingcache.Scenario.
func (s *simulation) Disturb() {
	switch s.choose(6) {
	case 0, 1:
		s.addPod()
	case 2:
		if pods := s.pods(); len(pods) > 0 { // its job is done
			pod := pods[s.choose(len(pods))]
			pod.Status.Phase = corev1.PodSucceeded
			laggingcache.Put(s.Cluster, "pods", pod)
		}
	case 3:
		s.changeSlice()
	case 4, 5:
		s.changeRule()
	}
}

// addPod adds a pod that is bound and uses a device that no other pod has.
func (s *simulation) addPod() {
	name := fmt.Sprint("gpu-", s.choose(2))
	if slices.ContainsFunc(s.pods(), func(p *corev1.Pod) bool { return p.Name == name }) ||
		slices.ContainsFunc(s.claims(), func(c *resourcev1.ResourceClaim) bool { return c.Name == name }) {
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	pod = laggingcache.Put(s.Cluster, "pods", pod)
	tolerations := [][]resourcev1.DeviceToleration{nil, {tolerating("")}, {tolerating(noExecute, 5)}}[s.choose(3)]
	claim := aClaim(tolerations...)
	claim.Name = name
	claim.Status.Allocation.Devices.Results[0].Device = name
	claim.Status.ReservedFor[0].Name, claim.Status.ReservedFor[0].UID = name, pod.UID
	laggingcache.Put(s.Cluster, "resourceclaims", claim)
}

// changeSlice publishes the devices, one of them with a taint or none.
func (s *simulation) changeSlice() {
	slice := aSlice(1, "gpu-0")
	slice.Name = "node-1"
	if all := laggingcache.All[*resourcev1.ResourceSlice](s.Cluster, "resourceslices"); len(all) > 0 {
		slice = all[0]
		if s.choose(4) == 0 {
			laggingcache.Remove(s.Cluster, "resourceslices", slice)
			return
		}
	}
	slice.Spec.Devices = []resourcev1.Device{{Name: "gpu-0"}, {Name: "gpu-1"}}
	if i := s.choose(3); i < 2 {
		slice.Spec.Devices[i].Taints = []resourcev1.DeviceTaint{s.taint(noExecute)}
	}
	laggingcache.Put(s.Cluster, "resourceslices", slice)
}

func (s *simulation) taint(effect resourcev1.DeviceTaintEffect) resourcev1.DeviceTaint {
	taint, now := aTaint(effect), metav1.NewTime(s.Clock.Now())
	taint.TimeAdded = &now
	return taint
}

// changeRule makes, changes or deletes the rule about a device.
func (s *simulation) changeRule() {
	device := fmt.Sprint("gpu-", s.choose(2))
	var rule *resourcev1.DeviceTaintRule
	for _, known := range laggingcache.All[*resourcev1.DeviceTaintRule](s.Cluster, "devicetaintrules") {
		if known.Name == device {
			rule = known
		}
	}
	switch {
	case rule != nil && s.choose(3) == 0:
		laggingcache.Remove(s.Cluster, "devicetaintrules", rule)
		return
	case rule == nil:
		rule = aRule("", noExecute, &resourcev1.DeviceTaintSelector{Device: &device})
		rule.Name = device
	default:
		rule.Generation++
	}
	rule.Spec.Taint = s.taint([]resourcev1.DeviceTaintEffect{noExecute, noSchedule, resourcev1.DeviceTaintEffectNone}[s.choose(3)])
	laggingcache.Put(s.Cluster, "devicetaintrules", rule)
}

// Live is the node, which ends pods that are being deleted, and the controller of claims.
func (s *simulation) Live(int) bool {
	pods := s.pods()
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
			laggingcache.Remove(s.Cluster, "pods", pod)
			return true
		}
	}
	for _, claim := range s.claims() {
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == claim.Status.ReservedFor[0].UID }) {
			laggingcache.Remove(s.Cluster, "resourceclaims", claim)
			return true
		}
	}
	return false
}

// Observe implements laggingcache.Scenario.
func (s *simulation) Observe() string { return s.broken }

// AtRest implements laggingcache.Scenario: no pod with a reason to leave is there, and each rule says what it does.
func (s *simulation) AtRest() string {
	stored := Cluster{
		Slices: laggingcache.All[*resourcev1.ResourceSlice](s.Cluster, "resourceslices"),
		Rules:  laggingcache.All[*resourcev1.DeviceTaintRule](s.Cluster, "devicetaintrules"),
	}
	for _, pod := range s.pods() {
		if e := stored.Decide(pod, s.claims(), s.Clock.Now()); e.IsNeeded {
			return fmt.Sprintf("%s was to leave at %v", pod.Name, e.At)
		}
	}
	reasons := map[resourcev1.DeviceTaintEffect][]string{noExecute: {"NotStarted", "Completed"}, noSchedule: {"OtherEffect"}, resourcev1.DeviceTaintEffectNone: {"NoEffect"}}
	for _, rule := range stored.Rules {
		c := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
		if c == nil || c.ObservedGeneration != rule.Generation || !slices.Contains(reasons[rule.Spec.Taint.Effect], c.Reason) {
			return fmt.Sprintf("the rule %s has the condition %+v", rule.Name, c)
		}
	}
	return ""
}

// TestPodsLeaveOnlyWithAReason plays random histories on caches that lag.
func TestPodsLeaveOnlyWithAReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSimulation(t)
		s.Play(t, s)
	})
}
