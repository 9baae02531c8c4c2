package certificates

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

const (
	// maxChain is the maximum size of an issued certificate with its intermediate ones.
	maxChain = 100 << 10
	// maxSkew is how far the start of a certificate may be from now.
	maxSkew = 5 * time.Minute
	// refreshMargin is how long after its start and before its end a certificate may be refreshed.
	refreshMargin = 10 * time.Minute
)

// validatePodRequestStatus checks a new status of a request: it gets one outcome, and keeps it.
func validatePodRequestStatus(r, old *certificatesv1.PodCertificateRequest, now time.Time) field.ErrorList {
	status := field.NewPath("status")
	if errs := validateOutcomes(r.Status.Conditions, status.Child("conditions")); len(errs) > 0 {
		return errs
	}
	same := equality.Semantic.DeepEqual(r.Status, old.Status)
	refuse := func(detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(status, field.OmitValueType{}, detail)}
	}
	outcome := outcomeOf(r.Status.Conditions)
	switch {
	case outcomeOf(old.Status.Conditions) != "":
		if !same {
			return refuse("immutable after PodCertificateRequest is issued, denied, or failed")
		}
	case outcome == "":
		if !same {
			return refuse(`status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
		}
	case outcome == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(r, now)
	case !equality.Semantic.DeepEqual(r.Status, certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}):
		return refuse("non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	return nil
}

// validateOutcomes checks that all conditions are outcomes, and that there is at most one.
func validateOutcomes(conditions []metav1.Condition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := 0
	for i, c := range conditions {
		element := at.Child("[" + strconv.Itoa(i) + "]") // Kubernetes writes it like this
		if !slices.Contains(outcomes(), c.Type) {
			errs = append(errs, field.NotSupported(element.Child("type"), c.Type, outcomes()))
			continue
		}
		known++
		if known > 1 {
			errs = append(errs, field.Invalid(element.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(element.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metav1validation.ValidateConditions(conditions, at)...)
}

// validateIssued checks a status with a certificate.
func validateIssued(r *certificatesv1.PodCertificateRequest, now time.Time) field.ErrorList {
	at := field.NewPath("status", "certificateChain")
	chain := r.Status.CertificateChain
	invalid := func(detail string) field.ErrorList { return field.ErrorList{field.Invalid(at, chain, detail)} }
	if errs := validate.MaxBytes(chain, at, maxChain); len(errs) > 0 {
		return errs
	}
	block, rest := pem.Decode([]byte(chain))
	switch {
	case block == nil:
		return invalid("issued certificate chain must contain at least one certificate")
	case block.Type != certutil.CertificateBlockType:
		return invalid("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return invalid("leaf certificate does not parse as valid X.509")
	}
	errs := validateNames(leaf, at)
	if refused := validateSubject(r, leaf, at); len(refused) > 0 {
		return append(errs, refused...)
	}
	if refused := validateTimes(r, leaf, now); len(refused) > 0 {
		return append(errs, refused...)
	}
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certutil.CertificateBlockType {
			// Kubernetes writes it like this.
			return append(errs, invalid("issued certificate chain must consist entirely of CERTFICATE PEM blocks")...)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return append(errs, invalid("intermediate certificate does not parse as valid X.509")...)
		}
	}
	return errs
}

// validateNames checks the alternative names of a certificate.
func validateNames(leaf *x509.Certificate, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(at, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(at, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

// validateSubject checks that a certificate has the public key for which it was requested.
func validateSubject(r *certificatesv1.PodCertificateRequest, leaf *x509.Certificate, at *field.Path) field.ErrorList {
	request, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	if key, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		return field.ErrorList{field.Invalid(at, r.Status.CertificateChain, "leaf certificate was not issued to the requested public key")}
	}
	return nil
}

// validateTimes checks that a status has the times of the certificate, and that the certificate lives long enough and
// not longer than requested.
func validateTimes(r *certificatesv1.PodCertificateRequest, leaf *x509.Certificate, now time.Time) field.ErrorList {
	status := field.NewPath("status")
	begin, end, refresh := status.Child("notBefore"), status.Child("notAfter"), status.Child("beginRefreshAt")
	s := r.Status
	var errs field.ErrorList
	require := func(t *metav1.Time, at *field.Path, detail string) {
		if t == nil {
			errs = append(errs, field.Required(at, detail))
		}
	}
	require(s.NotBefore, begin, "must be present and consistent with the issued certificate")
	require(s.NotAfter, end, "must be present and consistent with the issued certificate")
	require(s.BeginRefreshAt, refresh, "must be present and in the range [notbefore+10min, notafter-10min]")
	if len(errs) > 0 {
		return errs
	}
	invalid := func(at *field.Path, value any, detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, value, detail)}
	}
	lifetime := leaf.NotAfter.Sub(leaf.NotBefore)
	longest := *r.Spec.MaxExpirationSeconds
	switch skew := s.NotBefore.Sub(now).Abs(); {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return invalid(begin, s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")
	case skew >= maxSkew:
		return invalid(begin, s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return invalid(end, s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")
	case lifetime < validate.MinPodCertificateLifetime*time.Second:
		return invalid(status.Child("certificateChain"), lifetime, "leaf certificate lifetime must be >= 1 hour")
	case lifetime > time.Duration(longest)*time.Second:
		return invalid(status.Child("certificateChain"), lifetime,
			fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", longest))
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshMargin)):
		return invalid(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")
	case s.BeginRefreshAt.After(s.NotAfter.Add(-refreshMargin)):
		return invalid(refresh, s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}
