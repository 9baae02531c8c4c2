package certificates

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// decisions are the conditions that only /approval sets.
func decisions() []certificatesv1.RequestConditionType {
	return []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}
}

// approvalEndpoint returns /approval, which changes the conditions only.
func approvalEndpoint(r *registry.REST) rest.Storage {
	return registry.Subresource(r, func(to, sent *certificatesv1.CertificateSigningRequest) {
		to.Status.Conditions = dated(sent.Status.Conditions, to, r.Now())
	}, "spec", validateApproval)
}

// statusEndpoint returns /status, which sets the certificate, and conditions other than the
// decision of the approver.
func statusEndpoint(r *registry.REST) rest.Storage {
	return registry.Subresource(r, func(to, sent *certificatesv1.CertificateSigningRequest) {
		conditions := slices.Clone(sent.Status.Conditions)
		for _, t := range decisions() {
			restore(conditions, to, t)
		}
		to.Status.Conditions = dated(conditions, to, r.Now())
		to.Status.Certificate = sent.Status.Certificate
	}, "spec", validateStatus)
}

// restore puts the stored conditions of a type into the conditions that the client sent. If the client added or removed
// some it does nothing, and the validation refuses the update.
func restore(conditions []certificatesv1.CertificateSigningRequestCondition, stored *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) {
	was := conditionsOf(stored, t)
	var at []int
	for i, c := range conditions {
		if c.Type == t {
			at = append(at, i)
		}
	}
	if len(at) != len(was) {
		return
	}
	for i, j := range at {
		conditions[j] = was[i]
	}
}

// dated returns conditions with the times set that the client has left out.
func dated(
	sent []certificatesv1.CertificateSigningRequestCondition, stored *certificatesv1.CertificateSigningRequest, now time.Time,
) []certificatesv1.CertificateSigningRequestCondition {
	conditions := slices.Clone(sent)
	before := map[certificatesv1.RequestConditionType][]certificatesv1.CertificateSigningRequestCondition{}
	for _, was := range stored.Status.Conditions {
		before[was.Type] = append(before[was.Type], was)
	}
	for i := range conditions {
		c := &conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = metav1.NewTime(now)
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = metav1.NewTime(now)
		for _, was := range before[c.Type] {
			if was.Status == c.Status && !was.LastTransitionTime.IsZero() {
				c.LastTransitionTime = was.LastTransitionTime
				break
			}
		}
	}
	return conditions
}

func conditionsOf(csr *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var found []certificatesv1.CertificateSigningRequestCondition
	for _, c := range csr.Status.Conditions {
		if c.Type == t {
			found = append(found, c)
		}
	}
	return found
}

func validateApproval(csr, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return append(validateConditions(csr), refuseRemoval(csr, old)...)
}

func validateStatus(csr, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	status := field.NewPath("status")
	errs := validateConditions(csr)
	if err := checkCertificate(csr.Status.Certificate); err != nil {
		errs = append(errs, field.Invalid(status.Child("certificate"), "<certificate data>", err.Error()))
	}
	errs = append(errs, refuseRemoval(csr, old)...)
	for _, t := range decisions() {
		if len(conditionsOf(csr, t)) > len(conditionsOf(old, t)) {
			errs = append(errs, field.Forbidden(status.Child("conditions"), fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	if len(old.Status.Certificate) > 0 && !bytes.Equal(csr.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(status.Child("certificate"), "updates may not modify existing certificate content"))
	}
	return errs
}

// refuseRemoval refuses to remove a decision or a failure.
func refuseRemoval(csr, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	for _, t := range append(decisions(), certificatesv1.CertificateFailed) {
		if len(conditionsOf(csr, t)) < len(conditionsOf(old, t)) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	return errs
}
