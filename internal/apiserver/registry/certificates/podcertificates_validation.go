package certificates

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

const (
	// maxUID is the maximum length of a UID in a request.
	maxUID = 128
	// maxStub is the maximum size of the request in the format PKCS #10.
	maxStub = 10 << 10
)

// validatePodRequest checks a new request.
func validatePodRequest(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	spec := field.NewPath("spec")
	s := &r.Spec
	errs := slices.Concat(
		validate.SignerName(s.SignerName, spec.Child("signerName")),
		validate.UserAnnotations(s.UnverifiedUserAnnotations, spec.Child("unverifiedUserAnnotations")),
		validateNamed(s.PodName, s.PodUID, spec, "pod"),
		validateNamed(s.ServiceAccountName, s.ServiceAccountUID, spec, "serviceAccount"),
		validateNamed(string(s.NodeName), s.NodeUID, spec, "node"))
	lifetime := spec.Child("maxExpirationSeconds")
	if s.MaxExpirationSeconds == nil {
		return append(errs, field.Required(lifetime, "must be set"))
	}
	const shortest = validate.MinPodCertificateLifetime
	longest := validate.MaxPodCertificateLifetime(s.SignerName)
	if seconds := *s.MaxExpirationSeconds; seconds < shortest || seconds > longest {
		errs = append(errs, field.Invalid(lifetime, seconds, fmt.Sprintf("must be in the range [%d, %d]", shortest, longest)))
	}
	if len(s.StubPKCS10Request) == 0 {
		// As in Kubernetes, the error names the fields of older versions.
		return append(errs, field.Invalid(spec, field.OmitValueType{},
			"exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
	}
	return append(errs, validateStub(s.StubPKCS10Request, spec.Child("stubPKCS10Request"))...)
}

// validateNamed checks the name and the UID of an object that a request names.
func validateNamed(name string, uid types.UID, spec *field.Path, prefix string) field.ErrorList {
	errs := validate.FromMessages(name, spec.Child(prefix+"Name"), apivalidation.NameIsDNSSubdomain(name, false))
	at := spec.Child(prefix + "UID")
	if uid == "" {
		errs = append(errs, field.Invalid(at, uid, "must not be empty"))
	}
	errs = append(errs, validate.MaxBytes(uid, at, maxUID)...)
	return errs
}

// validateStub checks a request in the format PKCS #10 that has nothing but a key. As in Kubernetes, signers check that
// it has nothing else.
func validateStub(der []byte, at *field.Path) field.ErrorList {
	invalid := func(value any, detail string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, value, detail)}
	}
	if len(der) > maxStub {
		return field.ErrorList{field.TooLong(at, "", maxStub)}
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return invalid(field.OmitValueType{}, "must be a valid PKCS#10 CSR")
	}
	switch key := request.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return invalid("curve "+key.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return invalid(fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
		}
	default:
		return invalid(field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	if err := request.CheckSignature(); err != nil {
		return invalid(field.OmitValueType{}, "invalid signature")
	}
	return nil
}
