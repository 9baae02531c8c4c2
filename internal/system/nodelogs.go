package system

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coppice-dev/coppice/internal/agent/logs"
	"github.com/coppice-dev/coppice/internal/apiserver/access"
)

// nodeLogs serves the logs of one node's pods to the API server; nil: nobody does.
type nodeLogs struct {
	listener net.Listener
	identity nodeIdentity
	log      *slog.Logger
}

// openLogs opens the port. It returns nil, and logs why, where the API server could not
// be told from others or would not find the port.
func openLogs(ctx context.Context, o NodeOptions) (*nodeLogs, error) {
	identity, err := identify(o.Config, o.Name)
	if err == nil && !reaches(o.Address, o.Bind) {
		err = fmt.Errorf("%s, which they would be served on, is not the address of the node, %s", o.Bind, o.Address)
	}
	if err != nil {
		o.Log.WarnContext(ctx, "logs are not served", "node", o.Name, "reason", err)
		return nil, nil //nolint:nilnil // a node may well do without
	}
	listener, err := listenOn(ctx, o.Bind, o.Port, "--port")
	if err != nil {
		return nil, err
	}
	return &nodeLogs{listener, identity, o.Log}, nil
}

// reaches tells whether what listens on an address is found at that of the node.
func reaches(node, bind net.IP) bool { return bind.IsUnspecified() || bind.Equal(node) }

// port is where logs are served; 0 if nowhere.
func (l *nodeLogs) port() int32 {
	if l == nil {
		return 0
	}
	if address, ok := l.listener.Addr().(*net.TCPAddr); ok {
		return int32(address.Port) //nolint:gosec // a port has 16 bits
	}
	return 0
}

// serve serves until ctx ends.
func (l *nodeLogs) serve(ctx context.Context, agent logs.Agent) error {
	if l == nil {
		return nil
	}
	server := logs.Server{
		Agent: agent, Client: access.LogReaderUser, Authorities: l.identity.authorities, Log: l.log,
		Certificate: func() (*tls.Certificate, error) { return &l.identity.certificate, nil },
	}
	return server.Serve(ctx, l.listener)
}

func (l *nodeLogs) close() {
	if l != nil {
		l.listener.Close()
	}
}

// nodeIdentity is what a node shows, and by what it knows the API server.
type nodeIdentity struct {
	certificate tls.Certificate
	// authorities are those of the kubeconfig that have signed the node's own certificate. The
	// kubeconfig may trust more of them to say which server to talk to, but not whom to answer.
	authorities *x509.CertPool
}

// identify takes a node's identity from its kubeconfig. It fails with a credential that is
// not the node's, such as an administrator's, or a token.
func identify(c *rest.Config, node string) (nodeIdentity, error) {
	none := nodeIdentity{}
	config := rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(config); err != nil {
		return none, fmt.Errorf("read the credential: %w", err)
	}
	if len(config.CertData) == 0 || len(config.CAData) == 0 {
		return none, errors.New("the kubeconfig has no client certificate, or no certificate authority")
	}
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return none, fmt.Errorf("load the client certificate: %w", err)
	}
	err = certificate.Leaf.VerifyHostname(access.NodeServingName(node))
	if err != nil || !slices.Contains(certificate.Leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		return none, fmt.Errorf("the client certificate is not one that node %s can serve with: have coppice up --write-node-kubeconfig write another", node)
	}
	trusted, err := certutil.ParseCertsPEM(config.CAData)
	if err != nil {
		return none, fmt.Errorf("parse the certificate authority: %w", err)
	}
	trusted = slices.DeleteFunc(trusted, func(authority *x509.Certificate) bool {
		return certificate.Leaf.CheckSignatureFrom(authority) != nil
	})
	if len(trusted) == 0 {
		return none, errors.New("the certificate authority of the kubeconfig has not signed the client certificate")
	}
	authorities := x509.NewCertPool()
	for _, authority := range trusted {
		authorities.AddCert(authority)
	}
	return nodeIdentity{certificate, authorities}, nil
}
