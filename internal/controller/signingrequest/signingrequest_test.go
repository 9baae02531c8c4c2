package signingrequest

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct{ request, says string }{
		"no PEM":             {"nonsense", "PEM block type must be CERTIFICATE REQUEST"},
		"another block":      {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), "PEM block type must be CERTIFICATE REQUEST"},
		"a block of nothing": {string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: []byte("x")})), "asn1"},
	} {
		if _, err := Parse([]byte(test.request)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEveryKnownUsageHasAnEquivalentInACertificate: every known usage has an equivalent in a certificate, and duplicates appear
// once.
func TestEveryKnownUsageHasAnEquivalentInACertificate(t *testing.T) {
	known := KnownUsages()
	if len(known) != 23 || !slices.IsSorted(known) {
		t.Errorf("%d usages: %q", len(known), known)
	}
	for _, usage := range known {
		if key, purposes := Usages([]certificatesv1.KeyUsage{usage}); (key == 0) == (len(purposes) == 0) {
			t.Errorf("%q is %b and %v", usage, key, purposes)
		}
	}
	key, purposes := Usages([]certificatesv1.KeyUsage{"s/mime", "signing", "client auth", "key encipherment", "email protection", "nonsense"})
	if want := x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment; key != want {
		t.Errorf("key usage %b, want %b", key, want)
	}
	if want := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageEmailProtection}; !slices.Equal(purposes, want) {
		t.Errorf("purposes %v, want %v", purposes, want)
	}
}

func TestHasCondition(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, "": true, corev1.ConditionFalse: false} {
		csr := &certificatesv1.CertificateSigningRequest{}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: status}}
		if got := HasCondition(csr, certificatesv1.CertificateApproved); got != want {
			t.Errorf("%q: %t", status, got)
		}
		if HasCondition(csr, certificatesv1.CertificateDenied) {
			t.Errorf("%q: denied, too", status)
		}
	}
}
