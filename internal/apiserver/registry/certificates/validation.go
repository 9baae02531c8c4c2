package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
	"github.com/coppice-dev/coppice/internal/controller/signingrequest"
)

// shortestLifetime is the minimum lifetime that a client may request, in seconds.
const shortestLifetime = 600

func validateSpec(csr *certificatesv1.CertificateSigningRequest) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if err := checkRequest(csr.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), csr.Spec.Request, err.Error()))
	}
	errs = append(errs, validateUsages(csr.Spec.Usages, spec.Child("usages"))...)
	errs = append(errs, validateSignerName(csr.Spec.SignerName, spec.Child("signerName"))...)
	if seconds := csr.Spec.ExpirationSeconds; seconds != nil && *seconds < shortestLifetime {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *seconds, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// checkRequest checks that the request is signed with the key of the certificate.
func checkRequest(request []byte) error {
	parsed, err := signingrequest.Parse(request)
	if err != nil {
		return err
	}
	return parsed.CheckSignature()
}

func validateUsages(usages []certificatesv1.KeyUsage, at *field.Path) field.ErrorList {
	if len(usages) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	known := signingrequest.KnownUsages()
	errs := validate.Each(usages, at, func(usage *certificatesv1.KeyUsage, at *field.Path) field.ErrorList {
		if slices.Contains(known, *usage) {
			return nil
		}
		return field.ErrorList{field.NotSupported(at, *usage, known)}
	})
	return append(errs, validate.Distinct(usages, at)...)
}

// validateSignerName checks that the name of a signer is a domain and a path.
func validateSignerName(name string, at *field.Path) field.ErrorList {
	if name == signingrequest.LegacyUnknown {
		return field.ErrorList{field.Invalid(at, name, "the legacy signerName is not allowed via this API version")}
	}
	return validate.SignerName(name, at)
}

func validateConditions(csr *certificatesv1.CertificateSigningRequest) field.ErrorList {
	path := field.NewPath("status", "conditions")
	var errs field.ErrorList
	var decided certificatesv1.RequestConditionType
	seen := map[certificatesv1.RequestConditionType]bool{}
	for i, c := range csr.Status.Conditions {
		errs = append(errs, validate.Required(c.Type, path.Index(i).Child("type"))...)
		allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if c.Type == certificatesv1.CertificateFailed || slices.Contains(decisions(), c.Type) {
			allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		errs = append(errs, validate.OneOf(c.Status, path.Index(i).Child("status"), allowed...)...)
		if seen[c.Type] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("type"), c.Type))
		}
		seen[c.Type] = true
		if !slices.Contains(decisions(), c.Type) {
			continue
		}
		if decided != "" && decided != c.Type {
			errs = append(errs, field.Invalid(path, c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
		decided = c.Type
	}
	return errs
}

// checkCertificate checks that a certificate, if there is one, is PEM and contains only certificates.
func checkCertificate(certificate []byte) error {
	if len(certificate) == 0 {
		return nil
	}
	block, rest := pem.Decode(certificate)
	if block == nil {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	for ; block != nil; block, rest = pem.Decode(rest) {
		switch {
		case block.Type != certutil.CertificateBlockType:
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		case len(block.Headers) > 0:
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	return nil
}
