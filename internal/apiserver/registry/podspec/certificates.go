package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Projections of trust bundles and of certificates.

// validateTrustBundle checks a projection of one ClusterTrustBundle, by its name, or of those of a signer.
func validateTrustBundle(s *corev1.ClusterTrustBundleProjection, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case s.Name != nil && s.SignerName != nil:
		errs = append(errs, field.Invalid(at, s, "only one of name and signerName may be used"))
	case s.Name != nil:
		errs = append(errs, validateTrustBundleName(*s.Name, at.Child("name"))...)
		if s.LabelSelector != nil {
			errs = append(errs, field.Invalid(at.Child("labelSelector"), s.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case s.SignerName != nil:
		if *s.SignerName == "" {
			errs = append(errs, field.Required(at.Child("signerName"), "must be a valid signer name"))
		}
		errs = append(errs, validate.SignerName(*s.SignerName, at.Child("signerName"))...)
		errs = append(errs, metav1validation.ValidateLabelSelector(s.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(at, "either name or signerName must be specified"))
	}
	return append(errs, requiredLocalPath(s.Path, at.Child("path"))...)
}

// validateTrustBundleName checks the name of a ClusterTrustBundle: what is in front of the last colon names its signer.
func validateTrustBundleName(name string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at, "must be a valid object name"))
	}
	signer := ""
	if i := strings.LastIndex(name, ":"); i >= 0 {
		signer = strings.ReplaceAll(name[:i], ":", "/")
	}
	for _, complaint := range validate.TrustBundleName(signer)(name, false) {
		errs = append(errs, field.Invalid(at, name, "not a valid clustertrustbundlename: "+complaint))
	}
	return errs
}

// requiredLocalPath also reports an invalid name where it reports a missing one, as Kubernetes does for these files.
func requiredLocalPath(path string, at *field.Path) field.ErrorList {
	return append(validate.Required(path, at), localPath(path, at)...)
}

// validatePodCertificate checks a projection of a key and a certificate of the pod.
func validatePodCertificate(s *corev1.PodCertificateProjection, at *field.Path) field.ErrorList {
	errs := slices.Concat(
		validate.SignerName(s.SignerName, at.Child("signerName")),
		validate.UserAnnotations(s.UserAnnotations, at.Child("userAnnotations")),
	)
	if types := []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}; !slices.Contains(types, s.KeyType) {
		errs = append(errs, field.NotSupported(at.Child("keyType"), s.KeyType, types))
	}
	if seconds := s.MaxExpirationSeconds; seconds != nil {
		at := at.Child("maxExpirationSeconds")
		if shortest := int32(validate.MinPodCertificateLifetime); *seconds < shortest {
			errs = append(errs, field.Invalid(at, *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", shortest)))
		}
		if longest := validate.MaxPodCertificateLifetime(s.SignerName); *seconds > longest {
			errs = append(errs, field.Invalid(at, *seconds, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", longest)))
		}
	}
	if len(filesOf(s)) == 0 {
		errs = append(errs, field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	return slices.Concat(errs, localPath(s.CredentialBundlePath, at.Child("credentialBundlePath")),
		localPath(s.KeyPath, at.Child("keyPath")), localPath(s.CertificateChainPath, at.Child("certificateChainPath")))
}

// filesOf returns the paths of the files that a certificate is written to.
func filesOf(s *corev1.PodCertificateProjection) []string {
	return slices.DeleteFunc([]string{s.CredentialBundlePath, s.KeyPath, s.CertificateChainPath}, func(p string) bool { return p == "" })
}
