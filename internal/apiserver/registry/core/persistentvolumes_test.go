package core

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestPrepareVolumeStatus(t *testing.T) {
	before, said := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), metav1.NewTime(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))
	const pending, bound = corev1.VolumePending, corev1.VolumeBound
	for name, test := range map[string]struct {
		phase corev1.PersistentVolumePhase
		since *metav1.Time
		want  *metav1.Time // nil: now
	}{
		"the same phase":                  {pending, nil, &before},
		"the same phase, at another time": {pending, &said, &said},
		"another phase":                   {bound, nil, nil},
		"another phase, at the old time":  {bound, &before, nil},
		"another phase, at a time":        {bound, &said, &said},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: pending, LastPhaseTransitionTime: &before}}
				pv := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: test.phase, LastPhaseTransitionTime: test.since}}
				prepareVolumeStatus(pv, old)
				want := test.want
				if want == nil {
					want = new(metav1.Now())
				}
				if since := pv.Status.LastPhaseTransitionTime; !since.Equal(want) {
					t.Errorf("since %v, want %v", since, want)
				}
			})
		})
	}
}

func TestValidateClaimResource(t *testing.T) {
	for name, want := range map[corev1.ResourceName]field.ErrorType{
		"storage": "", "example.com/storage": "",
		"cpu": field.ErrorTypeNotSupported, "kubernetes.io/storage": field.ErrorTypeNotSupported, "a/b/c": field.ErrorTypeInvalid,
	} {
		errs := validateClaimResource(name, field.NewPath("at"))
		if len(errs) == 0 != (want == "") || len(errs) > 0 && errs[0].Type != want {
			t.Errorf("%s: %v, want %q", name, errs, want)
		}
	}
}
