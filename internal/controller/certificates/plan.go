// Package certificates signs approved CertificateSigningRequests, approves requests of nodes, and
// deletes old requests. In Kubernetes these are three controllers: csrsigning, csrapproving and
// csrcleaner. Two more are here: one publishes the certificate of the API server's signer
// (trustbundles.go), one deletes old PodCertificateRequests (podrequests.go).
//
//	request, now ──▶ plan.go: sign, fail, ask whether to approve, delete, or wait
//	                 signers.go: the requests that the signers of this control plane accept
//
// Other signers handle their requests themselves, but their old requests are deleted, too.
package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/coppice-dev/coppice/internal/controller/signingrequest"
)

// How long requests are kept: decided requests, so that their clients can fetch the certificate,
// and requests that wait for a decision.
const (
	keptDecided = time.Hour
	keptWaiting = 24 * time.Hour
)

// The lifetime of certificates. Clients' clocks may be behind, so a certificate is valid from a
// little before it was issued; a long-lived certificate ends earlier by the same time.
const (
	longestLifetime = 365 * 24 * time.Hour
	backdate        = 5 * time.Minute
	shortLifetime   = 8 * time.Hour
)

// Step is the next step for a request: Sign, Fail, Review, Delete or Wait.
//
//sumtype:decl
type Step interface{ step() }

type (
	// Sign issues the certificate.
	Sign struct {
		Template *x509.Certificate
		// PublicKey is the key that the certificate is for.
		PublicKey any
	}
	// Fail means that the signer refuses the approved request.
	Fail struct{ Message string }
	// Review approves the request if its user has one of the permissions.
	Review struct{ Permissions []Permission }
	// Delete deletes the request.
	Delete struct{}
	// Wait means that no step is due.
	Wait struct{}
)

func (Sign) step()   {}
func (Fail) step()   {}
func (Review) step() {}
func (Delete) step() {}
func (Wait) step()   {}

// Permission is the permission to have requests approved: to create a subresource of
// CertificateSigningRequests that is not served.
type Permission struct {
	Subresource string
	// Message is the message of the approval.
	Message string
}

// Plan is the result of Decide.
type Plan struct {
	Step Step
	// DeleteAt is the time when the request is deleted if it does not change; zero: never.
	DeleteAt time.Time
}

// Decide decides the next step for a request.
func Decide(csr *certificatesv1.CertificateSigningRequest, now time.Time) Plan {
	if csr.DeletionTimestamp != nil {
		return Plan{Step: Wait{}}
	}
	plan := Plan{Step: Wait{}, DeleteAt: deleteAt(csr)}
	if !plan.DeleteAt.IsZero() && now.After(plan.DeleteAt) {
		plan.Step = Delete{}
		return plan
	}
	request, err := signingrequest.Parse(csr.Spec.Request)
	if err != nil || len(csr.Status.Certificate) > 0 {
		return plan
	}
	approved := signingrequest.HasCondition(csr, certificatesv1.CertificateApproved)
	switch denied := signingrequest.HasCondition(csr, certificatesv1.CertificateDenied); {
	case !approved && !denied:
		if permissions := permissionsFor(csr, request); len(permissions) > 0 {
			plan.Step = Review{permissions}
		}
	case approved && !denied && !signingrequest.HasCondition(csr, certificatesv1.CertificateFailed):
		plan.Step = sign(csr, request, now)
	}
	return plan
}

// sign returns Sign, Fail, or, for an external signer, Wait.
func sign(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest, now time.Time) Step {
	check, ours := signers()[csr.Spec.SignerName]
	if !ours {
		return Wait{}
	}
	if err := check(request, csr.Spec.Usages); err != nil {
		return Fail{err.Error()}
	}
	return Sign{templateOf(csr, request, now), request.PublicKey}
}

// templateOf returns the requested certificate. It ignores extensions other than the names: a
// request must not get the certificate of an authority, for example.
func templateOf(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest, now time.Time) *x509.Certificate {
	template := &x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses, URIs: request.URIs,
		BasicConstraintsValid: true,
	}
	template.KeyUsage, template.ExtKeyUsage = signingrequest.Usages(csr.Spec.Usages)
	lifetime := longestLifetime
	if seconds := csr.Spec.ExpirationSeconds; seconds != nil {
		lifetime = min(lifetime, time.Duration(*seconds)*time.Second)
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lifetime)
	if lifetime >= shortLifetime {
		template.NotAfter = template.NotAfter.Add(-backdate)
	}
	return template
}

// deleteAt returns the time when a request expires; zero: never.
func deleteAt(csr *certificatesv1.CertificateSigningRequest) time.Time {
	var first time.Time
	until := func(from time.Time, kept time.Duration) {
		if at := from.Add(kept); !from.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if len(csr.Status.Conditions) == 0 {
		until(csr.CreationTimestamp.Time, keptWaiting)
	}
	issued := len(csr.Status.Certificate) > 0
	for _, c := range csr.Status.Conditions {
		switch {
		case c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed:
			until(c.LastUpdateTime.Time, keptDecided)
		case c.Type == certificatesv1.CertificateApproved && issued:
			until(c.LastUpdateTime.Time, keptDecided)
			until(expiry(csr.Status.Certificate), 0)
		case c.Type == certificatesv1.CertificateApproved:
			until(c.LastUpdateTime.Time, keptWaiting)
		}
	}
	return first
}

// expiry returns the end of a certificate's validity; zero if it cannot be read.
func expiry(certificate []byte) time.Time {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return time.Time{}
	}
	certificates, err := x509.ParseCertificates(block.Bytes)
	if err != nil || len(certificates) == 0 {
		return time.Time{}
	}
	return certificates[0].NotAfter
}
