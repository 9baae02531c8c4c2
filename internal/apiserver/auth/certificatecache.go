package auth

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/clock"
)

const (
	// cachedFor is how long a certificate is cached before it is verified again. While a server runs, only
	// the time can change the result: the authority is one file, read at the start, and there is no
	// revocation. A reload of the authority, or revocation, would have to clear this cache.
	cachedFor = time.Minute
	// maxCached bounds how many certificates are cached, of 2 kB each.
	maxCached = 1000
)

// certificateCache caches the users of verified client certificates. k8s.io/apiserver verifies the
// certificate of a connection in each of its requests, which takes 9 % of the processor time of a small
// write and 18 % for a small read (BenchmarkClientCertificate). The TLS handshake has proved that the
// client has the key of the certificate.
type certificateCache struct {
	next  authenticator.Request
	clock clock.PassiveClock

	mu    sync.RWMutex
	users map[string]cachedUser // by certificate, DER; guarded by mu
}

// cachedUser is the user of a certificate, until the certificate must be verified again.
type cachedUser struct {
	response *authenticator.Response // shared: must not be modified
	until    time.Time
}

func newCertificateCache(next authenticator.Request, clock clock.PassiveClock) *certificateCache {
	return &certificateCache{next: next, clock: clock, users: map[string]cachedUser{}}
}

// AuthenticateRequest implements authenticator.Request. It caches only accepted certificates, and only if
// the client presents no others: a certificate with intermediates may depend on one that expires earlier.
func (c *certificateCache) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) != 1 {
		return c.next.AuthenticateRequest(r)
	}
	certificate, now := r.TLS.PeerCertificates[0], c.clock.Now()
	c.mu.RLock()
	cached, ok := c.users[string(certificate.Raw)]
	c.mu.RUnlock()
	if ok && now.Before(cached.until) {
		return cached.response, true, nil
	}
	response, ok, err := c.next.AuthenticateRequest(r)
	if ok && err == nil {
		until := now.Add(cachedFor)
		if certificate.NotAfter.Before(until) {
			until = certificate.NotAfter
		}
		c.add(string(certificate.Raw), cachedUser{response, until})
	}
	return response, ok, err
}

func (c *certificateCache) add(certificate string, u cachedUser) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.users) >= maxCached {
		clear(c.users)
	}
	c.users[certificate] = u
}
