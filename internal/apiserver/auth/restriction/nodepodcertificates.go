package restriction

import (
	"context"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// checkPodCertificates allows requests for the certificates of pods on the node, and listing and watching them.
// Admission checks for which pod a request is.
func (n nodeRequests) checkPodCertificates(a authorizer.Attributes) error {
	if slices.Contains([]string{"list", "watch"}, a.GetVerb()) {
		return checkSelector(a, "spec.nodeName", n.node)
	}
	return checkVerb(a, "create")
}

// checkPodCertificate allows a request for a certificate of a pod on the node, by a signer that a volume of the pod
// names. Signers rely on the names and UIDs in a request.
func (n nodeWrites) checkPodCertificate(ctx context.Context, a admission.Attributes) error {
	request, ok := a.GetObject().(*certificatesv1.PodCertificateRequest)
	if !ok || n.node == "" {
		return errOwnOnly
	}
	spec := request.Spec
	if string(spec.NodeName) != n.node {
		return fmt.Errorf("it can request certificates for pods of node %s only", n.node)
	}
	if len(request.Finalizers) > 0 {
		return errors.New("it cannot set finalizers")
	}
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: spec.PodName, UID: spec.PodUID}
	for _, owner := range request.OwnerReferences {
		if !equality.Semantic.DeepEqual(owner, pod) {
			return errors.New("the only owner of a request must be its pod, without blockOwnerDeletion")
		}
	}
	found, err := n.pods.HasMatch(ctx, n.node, a.GetNamespace(), func(pod *corev1.Pod) bool {
		return pod.Name == spec.PodName && pod.UID == spec.PodUID && accountOf(pod) == spec.ServiceAccountName && certifiedBy(pod, spec.SignerName)
	})
	if err == nil && !found {
		err = fmt.Errorf("no pod %s with uid %s, service account %s and a volume with a certificate of signer %s is bound to node %s",
			spec.PodName, spec.PodUID, spec.ServiceAccountName, spec.SignerName, n.node)
	}
	if err != nil {
		return err
	}
	if err := n.checkUID(ctx, "serviceaccounts", a.GetNamespace(), spec.ServiceAccountName, spec.ServiceAccountUID); err != nil {
		return err
	}
	return n.checkUID(ctx, "nodes", metav1.NamespaceNone, n.node, spec.NodeUID)
}

// checkUID checks that an object exists and has a UID.
func (n nodeWrites) checkUID(ctx context.Context, resource, namespace, name string, want types.UID) error {
	uid, err := n.pods.UID(ctx, resource, namespace, name)
	if err == nil && (uid == "" || uid != want) {
		err = fmt.Errorf("the uid of %s %s is not %s", resource, name, want)
	}
	return err
}

// certifiedBy reports whether a volume of a pod has a certificate of a signer.
func certifiedBy(pod *corev1.Pod, signer string) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.PodCertificate != nil && source.PodCertificate.SignerName == signer {
				return true
			}
		}
	}
	return false
}
