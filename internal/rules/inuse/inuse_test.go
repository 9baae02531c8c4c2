package inuse

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim is a terminating claim with the finalizers.
func claim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: "claim-uid", DeletionTimestamp: new(metav1.Now()), Finalizers: finalizers,
	}}
}

// pod is a pod on a node with the volume.
func pod(source corev1.VolumeSource) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "pod-uid"},
		Spec:       corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}},
	}
}

func named(claim string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
}

func ephemeral() corev1.VolumeSource {
	return corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
}

func TestR23_UsedClaimStays(t *testing.T) {
	const foreign = "example.com/hold"
	protected := claim("data", foreign, PVCProtection)
	active := claim("data", PVCProtection)
	active.DeletionTimestamp = nil
	made := claim("web-v", PVCProtection)
	made.OwnerReferences = []metav1.OwnerReference{{Name: "web", UID: "pod-uid", Controller: new(true)}}
	unscheduled, ended, shutDown, shutDownNamed := pod(named("data")), pod(named("data")), pod(ephemeral()), pod(named("data"))
	unscheduled.Spec.NodeName = ""
	ended.Status.Phase = corev1.PodSucceeded
	for _, p := range []*corev1.Pod{&shutDown, &shutDownNamed} {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(0))
	}
	for name, test := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		pods  []corev1.Pod
		want  []string // the finalizers that are left; nil: it is kept
	}{
		"not used":                         {protected, nil, []string{foreign}},
		"the only finalizer":               {claim("data", PVCProtection), nil, []string{}},
		"not being deleted":                {active, nil, nil},
		"not protected":                    {claim("data", foreign), nil, nil},
		"used":                             {protected, []corev1.Pod{pod(named("other")), pod(named("data"))}, nil},
		"another claim is used":            {protected, []corev1.Pod{pod(named("other"))}, []string{foreign}},
		"pod on no node":                   {protected, []corev1.Pod{unscheduled}, []string{foreign}},
		"pod that has ended":               {protected, []corev1.Pod{ended}, nil},
		"pod that the node is done with":   {protected, []corev1.Pod{shutDownNamed}, nil},
		"made for the pod":                 {made, []corev1.Pod{pod(ephemeral())}, nil},
		"made for the pod, done with":      {made, []corev1.Pod{shutDown}, []string{}},
		"of the name, not made for it":     {claim("web-v", PVCProtection), []corev1.Pod{pod(ephemeral())}, []string{}},
		"volumes without claims":           {protected, []corev1.Pod{pod(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})}, []string{foreign}},
		"pod without volumes on this node": {protected, []corev1.Pod{{Spec: corev1.PodSpec{NodeName: "n"}}}, []string{foreign}},
	} {
		t.Run(name, func(t *testing.T) { check(t, DecideClaim(test.claim, test.pods), test.want) })
	}
}

func TestR23_BoundVolumeStays(t *testing.T) {
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "disk", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{PVProtection}},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "claim-uid"}},
		}
		change(v)
		return v
	}
	as := func(*corev1.PersistentVolume) {}
	names, silent := claim("data"), claim("data")
	names.Spec.VolumeName = "disk"
	for name, test := range map[string]struct {
		volume *corev1.PersistentVolume
		claim  *corev1.PersistentVolumeClaim
		free   bool
	}{
		"bound to one another":     {volume(as), names, false},
		"bound, says its phase":    {volume(func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }), silent, false},
		"the claim names another":  {volume(as), silent, true},
		"the claim is gone":        {volume(func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }), nil, true},
		"the claim is another one": {volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "former" }), names, true},
		"bound by name":            {volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" }), names, false},
		"without a claimRef":       {volume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }), nil, true},
		"not being deleted":        {volume(func(v *corev1.PersistentVolume) { v.DeletionTimestamp = nil }), nil, false},
		"without the finalizer":    {volume(func(v *corev1.PersistentVolume) { v.Finalizers = nil }), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			if test.free {
				want = []string{}
			}
			check(t, DecideVolume(test.volume, test.claim), want)
		})
	}
}

func TestR23_UsedClassStays(t *testing.T) {
	class := func(change func(*storagev1.VolumeAttributesClass)) *storagev1.VolumeAttributesClass {
		c := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "gold", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{VACProtection}}}
		change(c)
		return c
	}
	as := func(*storagev1.VolumeAttributesClass) {}
	volume := func(class string) []corev1.PersistentVolume {
		return []corev1.PersistentVolume{{}, {Spec: corev1.PersistentVolumeSpec{VolumeAttributesClassName: &class}}}
	}
	of := func(change func(*corev1.PersistentVolumeClaim)) []corev1.PersistentVolumeClaim {
		c := claim("data")
		change(c)
		return []corev1.PersistentVolumeClaim{*claim("other"), *c}
	}
	for name, test := range map[string]struct {
		class   *storagev1.VolumeAttributesClass
		volumes []corev1.PersistentVolume
		claims  []corev1.PersistentVolumeClaim
		free    bool
	}{
		"named by nothing":     {class(as), volume("silver"), of(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("silver") }), true},
		"a volume has it":      {class(as), volume("gold"), nil, false},
		"a claim wants it":     {class(as), nil, of(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }), false},
		"a claim has it still": {class(as), nil, of(func(c *corev1.PersistentVolumeClaim) { c.Status.CurrentVolumeAttributesClassName = new("gold") }), false},
		"a claim is getting it": {class(as), nil, of(func(c *corev1.PersistentVolumeClaim) {
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "gold"}
		}), false},
		"it is not being deleted": {class(func(c *storagev1.VolumeAttributesClass) { c.DeletionTimestamp = nil }), nil, nil, false},
		"without the finalizer":   {class(func(c *storagev1.VolumeAttributesClass) { c.Finalizers = nil }), nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			if test.free {
				want = []string{}
			}
			check(t, DecideClass(test.class, test.volumes, test.claims), want)
		})
	}
}

// check compares a decision with the finalizers that are left; nil stands for Keep.
func check(t *testing.T, got Decision, want []string) {
	t.Helper()
	switch d := got.(type) {
	case Keep:
		if want != nil {
			t.Errorf("kept, because %s; want it to have %v left", d.Reason, want)
		}
	case RemoveFinalizer:
		if want == nil || !slices.Equal(d.Finalizers, want) {
			t.Errorf("it has %v left, want %v (nil: kept)", d.Finalizers, want)
		}
	}
}
