package auth

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"
)

const (
	// verifiedFor is for how long a certificate is not verified again. Nothing that is
	// verified changes while a server runs but the time: the authority is one file, read
	// at the start, and there are no lists of what was revoked.
	verifiedFor = time.Minute
	// maxVerified bounds how many certificates are remembered: 2 kB each.
	maxVerified = 1000
)

// verified remembers who the bearers of certificates are. The library verifies the
// signature of the certificate in each request of a connection, which took a seventh of
// the processor time of a small write. That the client has the key to the certificate
// is not for this to say: the TLS handshake proved it.
type verified struct {
	next  authenticator.Request
	clock clock.PassiveClock

	mu    sync.RWMutex
	known map[string]bearer // by certificate, DER; guarded by mu
}

// bearer is whom a certificate was issued to, until it has to be verified again.
type bearer struct {
	response *authenticator.Response // shared, so not to be changed
	until    time.Time
}

func newVerified(next authenticator.Request, clock clock.PassiveClock) *verified {
	return &verified{next: next, clock: clock, known: map[string]bearer{}}
}

// AuthenticateRequest implements authenticator.Request. Only what was accepted is
// remembered, and only of a certificate that was shown alone: with others beside it, it
// may be good through one that expires earlier.
func (v *verified) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) != 1 {
		return v.next.AuthenticateRequest(r)
	}
	certificate, now := r.TLS.PeerCertificates[0], v.clock.Now()
	v.mu.RLock()
	b, ok := v.known[string(certificate.Raw)]
	v.mu.RUnlock()
	if ok && now.Before(b.until) {
		return b.response, true, nil
	}
	response, ok, err := v.next.AuthenticateRequest(r)
	if ok && err == nil {
		until := now.Add(verifiedFor)
		if certificate.NotAfter.Before(until) {
			until = certificate.NotAfter
		}
		v.remember(string(certificate.Raw), bearer{response, until})
	}
	return response, ok, err
}

func (v *verified) remember(certificate string, b bearer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.known) >= maxVerified {
		clear(v.known)
	}
	v.known[certificate] = b
}
