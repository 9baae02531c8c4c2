package restriction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/serviceaccounttoken"
)

// checkToken allows a request for a token of the service account of a pod on the node, bound to this pod,
// for audiences that a volume of the pod names.
func (n nodeWrites) checkToken(ctx context.Context, a admission.Attributes) error {
	request, ok := a.GetObject().(*authenticationv1.TokenRequest)
	if !ok || n.node == "" {
		return errOwnOnly
	}
	ref := request.Spec.BoundObjectRef
	switch {
	case ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "":
		return errors.New("it can request tokens only that are bound to a pod")
	case ref.UID == "":
		return errors.New("it must name the uid of the pod that a token is bound to")
	}
	found, err := n.pods.HasMatch(ctx, n.node, a.GetNamespace(), func(pod *corev1.Pod) bool {
		return pod.Name == ref.Name && pod.UID == ref.UID && accountOf(pod) == a.GetName() && mounts(pod, request.Spec.Audiences)
	})
	if err == nil && !found {
		err = fmt.Errorf("no pod %s with uid %s, service account %s and a volume with a token for %q is bound to node %s",
			ref.Name, ref.UID, a.GetName(), request.Spec.Audiences, n.node)
	}
	return err
}

// accountOf returns the name of the service account of a pod.
func accountOf(pod *corev1.Pod) string { return cmp.Or(pod.Spec.ServiceAccountName, "default") }

// mounts reports whether a volume of a pod holds a token for each of these audiences.
func mounts(pod *corev1.Pod, audiences []string) bool {
	named := tokenAudiences(pod)
	return !slices.ContainsFunc(audiences, func(audience string) bool { return !slices.Contains(named, audience) })
}

// tokenAudiences returns the audiences of the tokens in the volumes of a pod. A token is for the API
// server unless the volume names another audience.
func tokenAudiences(pod *corev1.Pod) []string {
	var audiences []string
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				audiences = append(audiences, cmp.Or(source.ServiceAccountToken.Audience, serviceaccounttoken.Issuer))
			}
		}
	}
	return audiences
}
