package admissionchain

import (
	"context"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// podCertificateSigningName is the name of the plug-in. Kubernetes has no such plug-in: its registry checks this.
const podCertificateSigningName = "PodCertificateSigning"

// podCertificateSigning requires the permission to sign for a signer, to change the status of a PodCertificateRequest.
// As in Kubernetes, a user who lacks it gets the error that the object is invalid.
type podCertificateSigning struct {
	*admission.Handler
	signers signers
}

var _ admission.ValidationInterface = (*podCertificateSigning)(nil)

// newPodCertificateSigning returns a podCertificateSigning; authorize decides about permissions.
func newPodCertificateSigning(authorize authorizer.UnconditionalAuthorizer) (*podCertificateSigning, error) {
	if authorize == nil {
		return nil, errors.New("admission of pod certificates: authorize is required")
	}
	return &podCertificateSigning{admission.NewHandler(admission.Update), signers{authorize}}, nil
}

// Validate implements admission.ValidationInterface.
func (p *podCertificateSigning) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != certificatesv1.Resource("podcertificaterequests") || a.GetSubresource() != "status" {
		return nil
	}
	request, ok := a.GetObject().(*certificatesv1.PodCertificateRequest)
	old, wasOne := a.GetOldObject().(*certificatesv1.PodCertificateRequest)
	if !ok || !wasOne {
		return apierrors.NewInternalError(fmt.Errorf("not PodCertificateRequests: %T and %T", a.GetObject(), a.GetOldObject()))
	}
	signer := old.Spec.SignerName
	if equality.Semantic.DeepEqual(request.Status, old.Status) || p.signers.allow(ctx, a.GetUserInfo(), "sign", signer) {
		return nil
	}
	return apierrors.NewInvalid(certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest").GroupKind(), request.Name, field.ErrorList{
		field.Forbidden(field.NewPath("spec", "signerName"),
			fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", a.GetUserInfo().GetName(), signer)),
	})
}
