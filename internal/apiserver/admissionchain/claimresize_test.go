package admissionchain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

func TestClaimGrowsOnlyIfItsClassAllowsIt(t *testing.T) {
	classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, expansion := range map[string]*bool{"grows": new(true), "stays": new(false), "silent": nil} {
		if err := classes.Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: expansion}); err != nil {
			t.Fatal(err)
		}
	}
	p := &claimResize{admission.NewHandler(admission.Update), storagelisters.NewStorageClassLister(classes)}
	p.SetReadyFunc(func() bool { return true })

	const notAllowed = "the storageclass that provisions the pvc must support resize"
	for name, test := range map[string]struct {
		class, annotation string
		phase             corev1.PersistentVolumeClaimPhase
		size, subresource string
		want              string
	}{
		"allowed":             {"grows", "", corev1.ClaimBound, "2Gi", "", ""},
		"not allowed":         {"stays", "", corev1.ClaimBound, "2Gi", "", notAllowed},
		"not said":            {"silent", "", corev1.ClaimBound, "2Gi", "", notAllowed},
		"no such class":       {"none", "", corev1.ClaimBound, "2Gi", "", notAllowed},
		"no class":            {"", "", corev1.ClaimBound, "2Gi", "", notAllowed},
		"class by annotation": {"stays", "grows", corev1.ClaimBound, "2Gi", "", ""},
		"not bound":           {"grows", "", corev1.ClaimPending, "2Gi", "", "Only bound persistent volume claims can be expanded"},
		"the same size":       {"stays", "", corev1.ClaimBound, "1Gi", "", ""},
		"smaller":             {"stays", "", corev1.ClaimBound, "1Mi", "", ""},
		"its status":          {"stays", "", corev1.ClaimBound, "2Gi", "status", ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := func(size string) *corev1.PersistentVolumeClaim {
				c := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: test.phase}}
				c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
				if test.class != "" {
					c.Spec.StorageClassName = &test.class
				}
				if test.annotation != "" {
					c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: test.annotation}
				}
				return c
			}
			err := p.Validate(t.Context(), admission.NewAttributesRecord(claim(test.size), claim("1Gi"), corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "ns", "c",
				corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), test.subresource, admission.Update, nil, false, nil), nil)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
