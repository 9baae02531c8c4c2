package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// LogReaderUser is the common name of the client certificate that the API server presents to
// node agents when it reads logs. In the API server itself, that user has no role.
const LogReaderUser = "coppice-apiserver-kubelet-client"

// LogReaderIssuer is the common name of the authority that signs only this certificate. The control plane's
// authority also signs client certificates for approved requests, so a signature of it does not prove to an
// agent that the client is the API server.
const LogReaderIssuer = "coppice-agent-clients"

// CheckLogReader returns an error unless a client of an agent is the API server. verified are the client's
// chains to the authorities that the agent trusts: in one of them, the authority of LogReaderIssuer has
// signed the certificate of LogReaderUser.
func CheckLogReader(verified [][]*x509.Certificate) error {
	for _, chain := range verified {
		if len(chain) == 3 && chain[0].Subject.CommonName == LogReaderUser && chain[1].Subject.CommonName == LogReaderIssuer {
			return nil
		}
	}
	return errors.New("the client is not the API server")
}

// NodeServingName returns the DNS name in the serving certificate of a node's agent. It is never a host
// name, whatever the name of the node: the certificate of a node named localhost cannot be used to
// impersonate the API server.
func NodeServingName(node string) string { return bootstrappolicy.NodeUserPrefix + node }

// LogReader holds the API server's client certificate for node agents. The certificate is kept in memory
// and replaced when it is due. Each certificate has its own authority, whose key is discarded after one
// signature: nobody can have another certificate signed by it.
type LogReader struct {
	authority *Authority

	mu          sync.Mutex
	pair        Pair            // guarded by mu
	certificate tls.Certificate // parsed from pair; guarded by mu
}

// NewLogReader returns a LogReader. It issues its certificate on first use.
func NewLogReader(a *Authority) *LogReader { return &LogReader{authority: a} }

// TLS returns the configuration of a connection to the agent of a node. Another server at
// the address fails verification, and does not see the client certificate.
func (r *LogReader) TLS(node string) (*tls.Config, error) {
	certificate, err := r.current()
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AddCert(r.authority.cert)
	// With TLS 1.3 a client presents its certificate only after it has verified the server's.
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: NodeServingName(node), RootCAs: authorities,
		Certificates: []tls.Certificate{certificate}, Time: r.authority.now,
	}, nil
}

func (r *LogReader) current() (tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.authority.now().Before(r.pair.Due) {
		return r.certificate, nil
	}
	issuer, err := r.authority.subordinate(LogReaderIssuer)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := issuer.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: LogReaderUser},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return tls.Certificate{}, err
	}
	pair.Certificate = slices.Concat(pair.Certificate, issuer.Certificate())
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("load the certificate of %s: %w", LogReaderUser, err)
	}
	r.pair, r.certificate = pair, certificate
	return certificate, nil
}
