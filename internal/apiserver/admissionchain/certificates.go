package admissionchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/controller/signingrequest"
)

// The names of the plug-ins of Kubernetes for CertificateSigningRequests. They check which users may approve and sign
// requests of a signer, and refuse certificates for some subjects.
//
// The permissions are the verbs approve and sign on the resource signers of certificates.k8s.io, which is not served.
// The name of the object is the name of the signer, or DOMAIN/* for all signers of a domain.
const (
	certificateApprovalName           = "CertificateApproval"
	certificateSigningName            = "CertificateSigning"
	certificateSubjectRestrictionName = "CertificateSubjectRestriction"
)

// certificateApproval requires the permission to approve requests of a signer.
type certificateApproval struct {
	*admission.Handler
	signers signers
}

// certificateSigning requires the permission to sign for a signer.
type certificateSigning struct {
	*admission.Handler
	signers signers
}

// certificateSubjectRestriction refuses requests for client certificates of administrators.
type certificateSubjectRestriction struct{ *admission.Handler }

var (
	_ admission.ValidationInterface = (*certificateApproval)(nil)
	_ admission.ValidationInterface = (*certificateSigning)(nil)
	_ admission.ValidationInterface = (*certificateSubjectRestriction)(nil)
)

// newCertificateApproval returns a certificateApproval; authorize decides about permissions.
func newCertificateApproval(authorize authorizer.UnconditionalAuthorizer) (*certificateApproval, error) {
	if authorize == nil {
		return nil, errors.New("admission of certificates: authorize is required")
	}
	return &certificateApproval{admission.NewHandler(admission.Update), signers{authorize}}, nil
}

// newCertificateSigning returns a certificateSigning; authorize decides about permissions.
func newCertificateSigning(authorize authorizer.UnconditionalAuthorizer) (*certificateSigning, error) {
	if authorize == nil {
		return nil, errors.New("admission of certificates: authorize is required")
	}
	return &certificateSigning{admission.NewHandler(admission.Update), signers{authorize}}, nil
}

// newCertificateSubjectRestriction returns a certificateSubjectRestriction.
func newCertificateSubjectRestriction() *certificateSubjectRestriction {
	return &certificateSubjectRestriction{admission.NewHandler(admission.Create)}
}

// Validate implements admission.ValidationInterface. It uses the signer of the stored request, which an
// update cannot change.
func (p *certificateApproval) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isForSigningRequest(a, "approval") {
		return nil
	}
	old, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedSigningRequest(a, a.GetOldObject())
	}
	if !p.signers.allow(ctx, a.GetUserInfo(), "approve", old.Spec.SignerName) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to approve requests with signerName %q", old.Spec.SignerName))
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *certificateSigning) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isForSigningRequest(a, "status") {
		return nil
	}
	old, ok := a.GetOldObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedSigningRequest(a, a.GetOldObject())
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedSigningRequest(a, a.GetObject())
	}
	if bytes.Equal(old.Status.Certificate, csr.Status.Certificate) && equality.Semantic.DeepEqual(old.Status.Conditions, csr.Status.Conditions) {
		return nil
	}
	if !p.signers.allow(ctx, a.GetUserInfo(), "sign", old.Spec.SignerName) {
		return admission.NewForbidden(a, fmt.Errorf("user not permitted to sign requests with signerName %q", old.Spec.SignerName))
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *certificateSubjectRestriction) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isForSigningRequest(a, "") {
		return nil
	}
	csr, ok := a.GetObject().(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpectedSigningRequest(a, a.GetObject())
	}
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := signingrequest.Parse(csr.Spec.Request)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(request.Subject.Organization, user.SystemPrivilegedGroup) {
		return admission.NewForbidden(a, fmt.Errorf("use of %s signer with %s group is not allowed", csr.Spec.SignerName, user.SystemPrivilegedGroup))
	}
	return nil
}

// isForSigningRequest reports whether a request is for CertificateSigningRequests, or for a subresource of them.
func isForSigningRequest(a admission.Attributes, subresource string) bool {
	return a.GetResource().GroupResource() == certificatesv1.Resource("certificatesigningrequests") && a.GetSubresource() == subresource
}

func unexpectedSigningRequest(a admission.Attributes, got any) error {
	return admission.NewForbidden(a, fmt.Errorf("expected type CertificateSigningRequest, got: %T", got))
}

// signers decides which users may act for signers.
type signers struct {
	authorize authorizer.UnconditionalAuthorizer
}

// allow reports whether a user has a permission for a signer, or for its whole domain.
func (s signers) allow(ctx context.Context, u user.Info, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		decision, _, err := s.authorize.Authorize(ctx, authorizer.AttributesRecord{
			User: u, ResourceRequest: true, Verb: verb, APIGroup: certificatesv1.GroupName, APIVersion: "*", Resource: "signers", Name: name,
		})
		if err == nil && decision == authorizer.DecisionAllow {
			return true
		}
	}
	return false
}
