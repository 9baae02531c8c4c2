package statefulset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestOrdinalOf(t *testing.T) {
	for _, c := range []struct {
		pod     string
		ordinal int
		ok      bool
	}{
		{"web-0", 0, true},
		{"web-12", 12, true},
		{"web-2147483647", 2147483647, true},
		{"web-4294967293", 4294967293, true}, // the last of 2147483647 replicas from ordinal 2147483647 on
		{"web-4294967296", 0, false},
		{"web-", 0, false},
		{"web", 0, false},
		{"web-01", 0, false},
		{"web-00", 0, false},
		{"web--1", 0, false},
		{"web-+1", 0, false},
		{"web-1a", 0, false},
		{"web-a-1", 0, false},
		{"web2-1", 0, false},
	} {
		if n, ok := ordinalOf("web", c.pod); ok != c.ok || ok && n != c.ordinal {
			t.Errorf("ordinalOf(%q) is %d, %t", c.pod, n, ok)
		}
	}
}

func setWithVolumes() *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "set"},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "front", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec: corev1.PodSpec{Hostname: "overruled", Volumes: []corev1.Volume{
					{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {Name: "scratch"},
				}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"tier": "fast"}},
				Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "disk"},
			}},
		},
	}
}

func TestNewPod(t *testing.T) {
	set := setWithVolumes()
	pod := newPod(set, &set.Spec.Template, "web-abc", 7)
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-7", Labels: map[string]string{
			"app": "web", "statefulset.kubernetes.io/pod-name": "web-7", "apps.kubernetes.io/pod-index": "7", "controller-revision-hash": "web-abc",
		}},
		Spec: corev1.PodSpec{Hostname: "web-7", Subdomain: "front", Volumes: []corev1.Volume{
			{Name: "scratch"},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-7"}}},
		}},
	}
	if diff := cmp.Diff(want, pod); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
	if len(set.Spec.Template.Labels) != 1 || set.Spec.Template.Spec.Volumes[0].Name != "data" {
		t.Error("the template was changed")
	}
}

func TestNewClaim(t *testing.T) {
	set := setWithVolumes()
	claim := newClaim(set, &set.Spec.VolumeClaimTemplates[0], "web-7")
	want := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-web-7", Labels: map[string]string{"app": "web", "tier": "fast"}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "disk"},
	}
	if diff := cmp.Diff(want, claim); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
	if len(set.Spec.VolumeClaimTemplates[0].Labels) != 1 {
		t.Error("the template was changed")
	}
}

func TestRetentionPolicyDecidesTheOwnersOfClaims(t *testing.T) {
	const keep, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	type policy = appsv1.PersistentVolumeClaimRetentionPolicyType
	for _, c := range []struct {
		deleted, scaled policy
		condemned       bool
		want            retention
	}{
		{keep, keep, false, retention{}},
		{keep, keep, true, retention{}},
		{remove, keep, false, retention{WithSet: true}},
		{remove, keep, true, retention{WithSet: true}},
		{keep, remove, false, retention{}},
		{keep, remove, true, retention{WithPod: true}},
		{remove, remove, false, retention{WithSet: true}},
		{remove, remove, true, retention{WithPod: true}},
	} {
		set := setWithVolumes()
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: c.deleted, WhenScaled: c.scaled}
		if got := retentionOf(set, c.condemned); got != c.want {
			t.Errorf("when deleted %s, when scaled %s, condemned %t: %+v, want %+v", c.deleted, c.scaled, c.condemned, got, c.want)
		}
	}
	if got := retentionOf(setWithVolumes(), true); got != (retention{}) {
		t.Errorf("without a policy: %+v", got)
	}
}

func TestOwnersOfClaimsAreCorrected(t *testing.T) {
	ref := func(apiVersion, kind, name, uid string) metav1.OwnerReference {
		yes := true
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: &yes, BlockOwnerDeletion: &yes}
	}
	set, pod := ref("apps/v1", "StatefulSet", "web", "set"), ref("v1", "Pod", "web-7", "pod")
	oldPod, other := ref("v1", "Pod", "web-7", "earlier"), ref("v1", "ConfigMap", "backup", "b")
	bystander, plain := other, set
	bystander.Controller, plain.Controller, plain.BlockOwnerDeletion = nil, nil, nil
	for _, c := range []struct {
		name    string
		has     []metav1.OwnerReference
		policy  retention
		want    []metav1.OwnerReference
		changed bool
	}{
		{"none, and none", nil, retention{}, nil, false},
		{"with the set", nil, retention{WithSet: true}, []metav1.OwnerReference{set}, true},
		{"with the set, as it is", []metav1.OwnerReference{set}, retention{WithSet: true}, []metav1.OwnerReference{set}, false},
		{"from the set to the pod", []metav1.OwnerReference{set}, retention{WithPod: true}, []metav1.OwnerReference{pod}, true},
		{"from the pod back to the set", []metav1.OwnerReference{pod}, retention{WithSet: true}, []metav1.OwnerReference{set}, true},
		{"with nothing any more", []metav1.OwnerReference{pod}, retention{}, nil, true},
		{"an earlier pod of that name", []metav1.OwnerReference{oldPod}, retention{}, nil, true},
		{"a reference that does not block", []metav1.OwnerReference{plain}, retention{WithSet: true}, []metav1.OwnerReference{set}, true},
		{"others stay", []metav1.OwnerReference{bystander, pod}, retention{WithSet: true}, []metav1.OwnerReference{bystander, set}, true},
		{"another order is no change", []metav1.OwnerReference{set, bystander}, retention{WithSet: true}, []metav1.OwnerReference{bystander, set}, false},
		{"another object controls it", []metav1.OwnerReference{other}, retention{WithSet: true}, []metav1.OwnerReference{other}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.has}}
			got, changed := claimOwners(claim, &set, &pod, c.policy)
			if changed != c.changed {
				t.Errorf("changed is %t", changed)
			}
			if diff := cmp.Diff(c.want, got); diff != "" && len(got)+len(c.want) > 0 {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStaleClaims(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	if isStale(claim, "web-7") {
		t.Error("a claim without owners counts as stale")
	}
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-8"}, {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web-7"}}
	if isStale(claim, "web-7") {
		t.Error("a claim is stale that others own")
	}
	claim.OwnerReferences[0].Name = "web-7"
	if !isStale(claim, "web-7") {
		t.Error("a claim is not stale that goes with an earlier pod")
	}
	if !isStale(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}, "web-7") {
		t.Error("a claim is not stale that is being deleted")
	}
}
