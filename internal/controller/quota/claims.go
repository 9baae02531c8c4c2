package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/admission"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/utils/ptr"
)

// ofClass joins the name of a storage class and the limited resource, as in
// gold.storageclass.storage.k8s.io/requests.storage.
const ofClass = ".storageclass.storage.k8s.io/"

// claims returns the evaluator of volume claims: their number and their requests, also per storage
// class.
func claims(list List) quotav1.Evaluator {
	return newEvaluator(list, rules[*corev1.PersistentVolumeClaim]{
		resource: corev1.Resource("persistentvolumeclaims"), limits: limitsClaims, usage: claimUsage, handles: handlesClaim, matches: claimInScope,
	})
}

func claimCount() corev1.ResourceName {
	return generic.ObjectCountQuotaResourceNameFor(corev1.Resource("persistentvolumeclaims"))
}

// limitsClaims reports whether a resource name in a quota limits volume claims.
func limitsClaims(name corev1.ResourceName) bool {
	if name == claimCount() {
		return true
	}
	if i := strings.LastIndex(string(name), ofClass); i >= 0 {
		name = name[i+len(ofClass):]
	}
	return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
}

func claimUsage(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if !ok {
		class = ptr.Deref(claim.Spec.StorageClassName, "")
	}
	usage := corev1.ResourceList{claimCount(): number(1)}
	use := func(name corev1.ResourceName, quantity resource.Quantity) {
		usage[name] = quantity
		if class != "" {
			usage[corev1.ResourceName(class+ofClass)+name] = quantity
		}
	}
	use(corev1.ResourcePersistentVolumeClaims, number(1))
	if size, ok := claimSize(claim); ok {
		use(corev1.ResourceRequestsStorage, size)
	}
	return usage
}

// claimSize returns how much storage a claim requests, in whole bytes. A claim whose expansion was
// taken back is counted with its allocated size.
func claimSize(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(size) > 0 {
		size = allocated
	}
	size = size.DeepCopy()
	size.RoundUp(0)
	return size, ok
}

// handlesClaim reports whether a request may change the usage of volume claims. The status has the
// allocated size.
func handlesClaim(operation admission.Operation, subresource string, claim, old *corev1.PersistentVolumeClaim) bool {
	switch subresource {
	case "":
		return true
	case "status":
		return operation == admission.Update && (!quotav1.Equals(claimUsage(claim), claimUsage(old)) ||
			!slices.Equal(attributesClasses(claim), attributesClasses(old)))
	}
	return false
}
