package restriction

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A stolen credential of a node must neither reserve the claims of others for the pods of the node, nor hide the claims of these
// pods. An agent that does not know the fields leaves them out.
func TestNodesDoNotChangeTheClaimsOfPods(t *testing.T) {
	claims := func(name string) []corev1.PodResourceClaimStatus {
		return []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}
	}
	extended := func(name string) *corev1.PodExtendedResourceClaimStatus {
		return &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: name}
	}
	old := corev1.PodStatus{ResourceClaimStatuses: claims("own"), ExtendedResourceClaimStatus: extended("own")}
	for name, test := range map[string]struct {
		now  corev1.PodStatus
		want bool
	}{
		"the same":             {corev1.PodStatus{ResourceClaimStatuses: claims("own"), ExtendedResourceClaimStatus: extended("own")}, true},
		"left out":             {corev1.PodStatus{Phase: corev1.PodRunning}, true},
		"another claim":        {corev1.PodStatus{ResourceClaimStatuses: claims("other")}, false},
		"no claim any more":    {corev1.PodStatus{ResourceClaimStatuses: []corev1.PodResourceClaimStatus{}}, false},
		"another of extended":  {corev1.PodStatus{ExtendedResourceClaimStatus: extended("other")}, false},
		"no extended any more": {corev1.PodStatus{ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{}}, false},
	} {
		if err := checkSameClaims(&old, &test.now); (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, now := range []corev1.PodStatus{{ResourceClaimStatuses: claims("other")}, {ExtendedResourceClaimStatus: extended("other")}} {
		if checkSameClaims(&corev1.PodStatus{}, &now) == nil {
			t.Errorf("a pod without claims gets %+v", now)
		}
	}
}
