package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"sync"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// LogReaderUser is the common name of the certificate with which the API server asks the
// agents of nodes for logs. To the API server itself it is a user without a role.
const LogReaderUser = "coppice-apiserver-kubelet-client"

// NodeServingName is the name under which the agent of a node serves. It is no name of a
// host, whatever the node is called: nobody can be made to take the agent of a node named
// localhost for the API server.
func NodeServingName(node string) string { return rbac.NodeUserPrefix + node }

// LogReader is the API server as the agents of nodes know it. Its certificate lives in
// memory, and is replaced when it is due.
type LogReader struct {
	authority *Authority

	mu          sync.Mutex
	pair        Pair            // guarded by mu
	certificate tls.Certificate // that of pair; guarded by mu
}

// NewLogReader makes a reader. Its certificate is issued when it is first needed.
func NewLogReader(a *Authority) *LogReader { return &LogReader{authority: a} }

// TLS is for a connection to the agent of a node: whoever else is there sees no
// certificate of the reader, and is not believed.
func (r *LogReader) TLS(node string) (*tls.Config, error) {
	certificate, err := r.current()
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AddCert(r.authority.cert)
	// With TLS 1.3 a client shows its certificate after it has verified the server's.
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
	pair, err := r.authority.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: LogReaderUser},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return tls.Certificate{}, err
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("load the certificate of %s: %w", LogReaderUser, err)
	}
	r.pair, r.certificate = pair, certificate
	return certificate, nil
}
