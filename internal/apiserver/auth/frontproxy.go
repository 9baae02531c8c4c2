package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"sync"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
)

// FrontProxyUser is the common name of the client certificate that the API server presents to aggregated
// API servers. Only a client with this name may name users in headers.
const FrontProxyUser = "front-proxy-client"

// The headers in which a front proxy names the user of a request.
const (
	userHeader        = "X-Remote-User"
	uidHeader         = "X-Remote-Uid"
	groupHeader       = "X-Remote-Group"
	extraHeaderPrefix = "X-Remote-Extra-"
)

func frontProxyAuthority() authorityFiles {
	return authorityFiles{"coppice-front-proxy-ca", "front-proxy-ca.crt", "front-proxy-ca.key"}
}

// FrontProxy holds the client certificate that identifies requests of this control plane to aggregated API
// servers. Its authority issues no others: a client with such a certificate may name any user in headers,
// so the authority of users must not be accepted for it. The certificate is kept in memory, and replaced
// when it is due.
type FrontProxy struct {
	authority *Authority

	mu   sync.Mutex
	pair Pair // guarded by mu
}

// FrontProxy returns the identity of the control plane for aggregated API servers.
func (a *Authority) FrontProxy() *FrontProxy { return a.frontProxy }

// Authority returns the certificate, in PEM, with which aggregated API servers verify the proxy.
func (p *FrontProxy) Authority() []byte { return p.authority.Certificate() }

// Current returns the client certificate.
func (p *FrontProxy) Current() (Pair, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.authority.now().Before(p.pair.Due) {
		return p.pair, nil
	}
	pair, err := p.authority.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: FrontProxyUser},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Pair{}, err
	}
	p.pair = pair
	return pair, nil
}

// FrontProxyHeaders returns the headers that name the user, under the keys that aggregated API servers
// expect.
func FrontProxyHeaders() map[string][]string {
	return map[string][]string{
		"requestheader-username-headers":     {userHeader},
		"requestheader-uid-headers":          {uidHeader},
		"requestheader-group-headers":        {groupHeader},
		"requestheader-extra-headers-prefix": {extraHeaderPrefix},
		"requestheader-allowed-names":        {FrontProxyUser},
	}
}

// FrontProxies authenticates requests of front proxies, whose certificates verify accepts, as the users in
// their headers. It ignores the headers of all other clients.
func FrontProxies(verify x509request.VerifyOptionFunc) authenticator.Request {
	one := func(value string) headerrequest.StringSliceProvider { return headerrequest.StaticStringSlice{value} }
	headers := headerrequest.NewDynamicVerifyOptionsSecure(verify, one(FrontProxyUser), one(userHeader), one(uidHeader), one(groupHeader), one(extraHeaderPrefix))
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.Header[userHeader]) == 0 {
			return nil, false, nil
		}
		if !isFrontProxy(r.TLS.PeerCertificates, verify) {
			return nil, false, nil
		}
		return headers.AuthenticateRequest(r)
	})
}

// isFrontProxy reports whether the authority of front proxies has issued the client's certificate.
func isFrontProxy(presented []*x509.Certificate, verify x509request.VerifyOptionFunc) bool {
	options, ok := verify()
	if !ok {
		return false
	}
	options.Intermediates = x509.NewCertPool()
	for _, c := range presented[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := presented[0].Verify(options)
	return err == nil
}
