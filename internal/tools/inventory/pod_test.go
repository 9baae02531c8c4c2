package inventory_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// TestPodKeepsFieldsForDecisions: a Pod keeps the fields that decisions about pods need.
func TestPodKeepsFieldsForDecisions(t *testing.T) {
	grace := int64(7)
	meta := metav1.ObjectMeta{Name: "web-1", Namespace: "shop"}
	pod := &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			NodeName: "n1", TerminationGracePeriodSeconds: &grace,
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			},
			Containers: []corev1.Container{{Name: "a"}, {Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	want := inventory.Pod{
		Node: "n1", Grace: 7 * time.Second, Sleep: 3 * time.Second, Phase: corev1.PodRunning, Ready: true,
		Claims: []inventory.Claim{{Name: "disk"}, {Name: "web-1-scratch", Ephemeral: true}},
	}
	got := inventory.NewPod(pod)
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("%+v", *got)
	}
	object := got.Object(meta)
	again := inventory.NewPod(&object)
	again.Sleep, again.Ready = want.Sleep, want.Ready // no decision depends on these
	if !reflect.DeepEqual(*again, want) {
		t.Errorf("of the object: %+v", *again)
	}
	if !got.IsServing() || got.IsFinished() || !got.Uses("web-1-scratch") || got.Uses("scratch") {
		t.Errorf("%+v", got)
	}
}

// A spec may have more seconds than a duration: such a pod waits as long as a duration can be.
func TestLargestTimesOfAPod(t *testing.T) {
	for _, seconds := range []int64{9_300_000_000, math.MaxInt64} {
		pod := inventory.NewPod(&corev1.Pod{Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &seconds,
			Containers:                    []corev1.Container{{Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}}},
		}})
		const century = 100 * 365 * 24 * time.Hour
		if pod.Grace < century || pod.Sleep < century {
			t.Errorf("%d seconds: grace period %s, sleep %s", seconds, pod.Grace, pod.Sleep)
		}
	}
}
