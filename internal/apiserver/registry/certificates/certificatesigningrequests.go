// Package certificates is the API group certificates.k8s.io: requests for certificates, and the root certificates of
// signers.
package certificates

import (
	"context"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

// Group returns the API group certificates.k8s.io/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		AddToScheme:  certificatesv1.AddToScheme,
		Resources:    []registry.Resource{certificateSigningRequests(), clusterTrustBundles(), podCertificateRequests()},
	}
}

// CertificateSigningRequests do not change after their creation, except that /approval adds the decision of an approver
// and /status the certificate of a signer.
func certificateSigningRequests() registry.Resource {
	return registry.Define[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](registry.Resource{
		GroupVersion:        certificatesv1.SchemeGroupVersion,
		Kind:                "CertificateSigningRequest",
		Plural:              "certificatesigningrequests",
		ShortNames:          []string{"csr"},
		ValidateName:        path.ValidatePathSegmentName,
		Unmanaged:           []string{"spec"},
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Name(),
		table.Age(),
		table.Text("SignerName", "Who is to sign the certificate.", func(csr *certificatesv1.CertificateSigningRequest) string {
			return table.OrNone(csr.Spec.SignerName)
		}),
		table.Text("Requestor", "User who created the request.", func(csr *certificatesv1.CertificateSigningRequest) string { return csr.Spec.Username }),
		table.Text("RequestedDuration", "Requested lifetime of the certificate.", requestedDuration),
		table.Text("Condition", "Whether the request is approved or denied, and the certificate issued.", conditionText),
	}, registry.Strategy[*certificatesv1.CertificateSigningRequest]{
		BeginCreate:      setRequester,
		PrepareForUpdate: func(csr, old *certificatesv1.CertificateSigningRequest) { csr.Spec = old.Spec },
		Validate:         validateSpec,
		CopyStatus: registry.CopyField(func(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestStatus {
			return &csr.Status
		}),
		SelectableFields: func(csr *certificatesv1.CertificateSigningRequest) fields.Set {
			return fields.Set{"spec.signerName": csr.Spec.SignerName}
		},
		Subresources: func(r *registry.REST) map[string]rest.Storage {
			return map[string]rest.Storage{"approval": approvalEndpoint(r), "status": statusEndpoint(r)}
		},
	})
}

// setRequester sets the user who requests the certificate, whatever the client has sent: approvers rely on it.
func setRequester(ctx context.Context, _ registry.Registries, csr *certificatesv1.CertificateSigningRequest) error {
	csr.Spec.Username, csr.Spec.UID, csr.Spec.Groups, csr.Spec.Extra = "", "", nil, nil
	u, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return nil
	}
	csr.Spec.Username, csr.Spec.UID, csr.Spec.Groups = u.GetName(), u.GetUID(), slices.Clone(u.GetGroups())
	if len(u.GetExtra()) > 0 {
		csr.Spec.Extra = map[string]certificatesv1.ExtraValue{}
	}
	for key, values := range u.GetExtra() {
		csr.Spec.Extra[key] = slices.Clone(values)
	}
	return nil
}

func requestedDuration(csr *certificatesv1.CertificateSigningRequest) string {
	if csr.Spec.ExpirationSeconds == nil {
		return table.None
	}
	return duration.HumanDuration(time.Duration(*csr.Spec.ExpirationSeconds) * time.Second)
}

func conditionText(csr *certificatesv1.CertificateSigningRequest) string {
	has := func(t certificatesv1.RequestConditionType) bool { return len(conditionsOf(csr, t)) > 0 }
	words := []string{"Pending"}
	switch {
	case has(certificatesv1.CertificateDenied):
		words[0] = "Denied"
	case has(certificatesv1.CertificateApproved):
		words[0] = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		words = append(words, "Failed")
	}
	if len(csr.Status.Certificate) > 0 {
		words = append(words, "Issued")
	}
	return strings.Join(words, ",")
}
