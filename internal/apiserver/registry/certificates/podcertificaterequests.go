package certificates

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// defaultLifetime is the maximum lifetime of the certificate of a pod that names none, in seconds.
const defaultLifetime = 24 * 60 * 60

// podCertificateRequests ask signers for the certificates of pods. Node agents make them, for volumes of pods. They do
// not change, except that /status issues the certificate, or denies it. The admission plug-in podCertificateSigning
// requires a permission for that.
func podCertificateRequests() registry.Resource {
	type request = certificatesv1.PodCertificateRequest
	status := registry.CopyField(func(r *request) *certificatesv1.PodCertificateRequestStatus { return &r.Status })
	return registry.Define[request, certificatesv1.PodCertificateRequestList](registry.Resource{
		GroupVersion: certificatesv1.SchemeGroupVersion,
		Kind:         "PodCertificateRequest",
		Plural:       "podcertificaterequests",
		Namespaced:   true,
		ValidateName: apivalidation.NameIsDNSSubdomain,
	}, append([]table.Column{
		table.Name(),
		table.Text("PodName", "The pod that is to get the certificate.", func(r *request) string { return r.Spec.PodName }),
		table.Text("ServiceAccountName", "The service account of the pod.", func(r *request) string { return r.Spec.ServiceAccountName }),
		table.Text("NodeName", "The node of the pod.", func(r *request) string { return string(r.Spec.NodeName) }),
		table.Text("SignerName", "Who is to sign the certificate.", func(r *request) string { return r.Spec.SignerName }),
		table.Text("State", "Whether the request is pending, issued, denied or failed.", stateOf),
	}, table.Wide(
		table.Text("UnverifiedUserAnnotations", "What the pod's volume tells the signer.", func(r *request) string {
			return table.Labels(r.Spec.UnverifiedUserAnnotations)
		}))...), registry.Strategy[*request]{
		Default:        func(r *request) { registry.SetDefaultPtr(&r.Spec.MaxExpirationSeconds, defaultLifetime) },
		ValidateCreate: validatePodRequest,
		ValidateUpdate: func(r, old *request) field.ErrorList {
			return validate.Immutable(r.Spec, old.Spec, field.NewPath("spec"))
		},
		CopyStatus: status,
		SelectableFields: func(r *request) fields.Set {
			return fields.Set{"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName)}
		},
		Subresources: func(r *registry.REST) map[string]rest.Storage {
			return map[string]rest.Storage{"status": registry.Subresource(r, status, "spec", func(now, old *request) field.ErrorList {
				return validatePodRequestStatus(now, old, r.Now())
			})}
		},
	})
}

// outcomes are the conditions of a request that is done. A request has at most one of them.
func outcomes() []string {
	return []string{
		certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
		certificatesv1.PodCertificateRequestConditionTypeFailed,
	}
}

// stateOf returns the outcome of a request.
func stateOf(r *certificatesv1.PodCertificateRequest) string {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		if slices.Contains(outcomes(), c.Type) {
			state = c.Type
		}
	}
	return state
}

// outcomeOf returns the type of the first condition that is an outcome and true, or "".
func outcomeOf(conditions []metav1.Condition) string {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue && slices.Contains(outcomes(), c.Type)
	})
	if i < 0 {
		return ""
	}
	return conditions[i].Type
}
