// Package signingrequest reads CertificateSigningRequests, for all packages that handle them:
// the request in them, the usages, and the conditions. It decides nothing.
package signingrequest

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// LegacyUnknown is a signer name from before certificates.k8s.io/v1, which does not accept it.
const LegacyUnknown = "kubernetes.io/legacy-unknown"

const requestBlock = "CERTIFICATE REQUEST"

// Parse returns the request in a spec.request. It does not check the signature.
func Parse(request []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != requestBlock {
		return nil, errors.New("PEM block type must be " + requestBlock)
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// HasCondition reports whether a request has a condition of a type whose status is true.
func HasCondition(csr *certificatesv1.CertificateSigningRequest, condition certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == condition && (c.Status == "" || c.Status == corev1.ConditionTrue)
	})
}

// keyUsages maps the usages of a key in Kubernetes to the ones of crypto/x509.
func keyUsages() map[certificatesv1.KeyUsage]x509.KeyUsage {
	return map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning:           x509.KeyUsageDigitalSignature,
		certificatesv1.UsageDigitalSignature:  x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
		certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
		certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
		certificatesv1.UsageCertSign:          x509.KeyUsageCertSign,
		certificatesv1.UsageCRLSign:           x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly:      x509.KeyUsageEncipherOnly,
		certificatesv1.UsageDecipherOnly:      x509.KeyUsageDecipherOnly,
	}
}

// extendedUsages maps the purposes of a certificate in Kubernetes to the ones of crypto/x509.
func extendedUsages() map[certificatesv1.KeyUsage]x509.ExtKeyUsage {
	return map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny:             x509.ExtKeyUsageAny,
		certificatesv1.UsageServerAuth:      x509.ExtKeyUsageServerAuth,
		certificatesv1.UsageClientAuth:      x509.ExtKeyUsageClientAuth,
		certificatesv1.UsageCodeSigning:     x509.ExtKeyUsageCodeSigning,
		certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageSMIME:           x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem:  x509.ExtKeyUsageIPSECEndSystem,
		certificatesv1.UsageIPsecTunnel:     x509.ExtKeyUsageIPSECTunnel,
		certificatesv1.UsageIPsecUser:       x509.ExtKeyUsageIPSECUser,
		certificatesv1.UsageTimestamping:    x509.ExtKeyUsageTimeStamping,
		certificatesv1.UsageOCSPSigning:     x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC:    x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		certificatesv1.UsageNetscapeSGC:     x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
}

// KnownUsages returns all usages that a request may have, sorted.
func KnownUsages() []certificatesv1.KeyUsage {
	known := slices.Collect(maps.Keys(keyUsages()))
	known = slices.AppendSeq(known, maps.Keys(extendedUsages()))
	slices.Sort(known)
	return known
}

// Usages converts the usages of a request to those of a certificate. It ignores unknown ones,
// which are not accepted in requests.
func Usages(usages []certificatesv1.KeyUsage) (x509.KeyUsage, []x509.ExtKeyUsage) {
	keys, extended := keyUsages(), extendedUsages()
	var key x509.KeyUsage
	var purposes []x509.ExtKeyUsage
	for _, usage := range usages {
		key |= keys[usage]
		if purpose, ok := extended[usage]; ok {
			purposes = append(purposes, purpose)
		}
	}
	slices.Sort(purposes)
	return key, slices.Compact(purposes)
}
