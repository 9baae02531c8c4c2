package admissionchain

import (
	"context"
	"errors"
	"fmt"
	"maps"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// trustBundleName is the name of the plug-in of Kubernetes for ClusterTrustBundles.
const trustBundleName = "ClusterTrustBundleAttest"

// trustBundleAttest requires the permission to attest for a signer, to write a ClusterTrustBundle of the signer.
type trustBundleAttest struct {
	*admission.Handler
	signers signers
}

var _ admission.ValidationInterface = (*trustBundleAttest)(nil)

// newTrustBundleAttest returns a trustBundleAttest; authorize decides about permissions.
func newTrustBundleAttest(authorize authorizer.UnconditionalAuthorizer) (*trustBundleAttest, error) {
	if authorize == nil {
		return nil, errors.New("admission of trust bundles: authorize is required")
	}
	return &trustBundleAttest{admission.NewHandler(admission.Create, admission.Update), signers{authorize}}, nil
}

// Validate implements admission.ValidationInterface. An update that changes only owner references and finalizers needs
// no permission: the collector makes such updates.
func (p *trustBundleAttest) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("clustertrustbundles") || a.GetSubresource() != "" {
		return nil
	}
	bundle, ok := a.GetObject().(*certificatesv1.ClusterTrustBundle)
	if !ok {
		return admission.NewForbidden(a, fmt.Errorf("expected type ClusterTrustBundle, got: %T", a.GetObject()))
	}
	signer := bundle.Spec.SignerName
	if signer == "" {
		return nil
	}
	if old, ok := a.GetOldObject().(*certificatesv1.ClusterTrustBundle); ok && old.Spec == bundle.Spec &&
		maps.Equal(old.Labels, bundle.Labels) && maps.Equal(old.Annotations, bundle.Annotations) {
		return nil
	}
	if !p.signers.allow(ctx, a.GetUserInfo(), "attest", signer) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to attest for signerName %q", signer))
	}
	return nil
}
