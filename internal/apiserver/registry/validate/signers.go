package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSignerPath is the maximum length of a signer's name after its domain: a namespace and the name of an object in it.
const maxSignerPath = validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength

// SignerName checks that the name of a signer of certificates is a domain and a path.
func SignerName(name string, at *field.Path) field.ErrorList {
	domain, rest, ok := strings.Cut(name, "/")
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case !ok || strings.Contains(rest, "/"):
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	errs = append(errs, MaxBytes(domain, at, validation.DNS1123SubdomainMaxLength)...)
	errs = append(errs, signerLabels(domain, at, validation.IsDNS1123Label)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, signerLabels(rest, at, validation.IsDNS1123Subdomain)...)
	if longest := validation.DNS1123SubdomainMaxLength + 1 + maxSignerPath; len(name) > longest {
		errs = append(errs, field.TooLong(at, "", longest))
	}
	return errs
}

// signerLabels reports the first invalid label of a part of a name.
func signerLabels(part string, at *field.Path, check func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(part, ".") {
		var errs field.ErrorList
		for _, complaint := range check(label) {
			errs = append(errs, field.Invalid(at, part, fmt.Sprintf("validating label %q: %s", label, complaint)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}

// TrustBundleName returns the rule for names of the ClusterTrustBundles of a signer, and of those without one.
func TrustBundleName(signer string) apivalidation.ValidateNameFunc {
	return func(name string, prefix bool) []string {
		if signer == "" {
			if strings.Contains(name, ":") {
				return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
			}
			return apivalidation.NameIsDNSSubdomain(name, prefix)
		}
		begin := strings.ReplaceAll(signer, "/", ":") + ":"
		rest, ok := strings.CutPrefix(name, begin)
		if !ok {
			return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, begin)}
		}
		return apivalidation.NameIsDNSSubdomain(rest, prefix)
	}
}

// MinPodCertificateLifetime is the minimum lifetime of the certificate of a pod, in seconds.
const MinPodCertificateLifetime = 60 * 60

// MaxPodCertificateLifetime returns the maximum lifetime of certificates of pods by a signer, in seconds: a day if
// Kubernetes reserves its name, and 91 days otherwise.
func MaxPodCertificateLifetime(signer string) int32 {
	const day = 24 * 60 * 60
	domain, _, _ := strings.Cut(signer, "/")
	if domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		return day
	}
	return 91 * day
}

// UserAnnotations checks what a volume tells the signer of its certificate.
func UserAnnotations(annotations map[string]string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if err := apivalidation.ValidateAnnotationsSize(annotations); err != nil {
		errs = append(errs, field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}
