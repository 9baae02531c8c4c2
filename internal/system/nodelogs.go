package system

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// nodeLogs serves the logs of one node's pods, and streams to them, to the API server; nil if logs are not served.
type nodeLogs struct {
	listener    net.Listener
	authorities *x509.CertPool
	credential  *nodeCredential
	log         *slog.Logger
}

// openLogs opens the port. It returns nil, and logs the reason, if the API server could not be
// authenticated or could not reach the port.
func openLogs(ctx context.Context, o NodeOptions, credential *nodeCredential) (*nodeLogs, error) {
	authorities, err := clientAuthorities(o.Config, credential, o.Name)
	if err == nil && !reaches(o.Address, o.Bind) {
		err = fmt.Errorf("%s, which they would be served on, is not the address of the node, %s", o.Bind, o.Address)
	}
	if err != nil {
		o.Log.WarnContext(ctx, "logs and streams are not served", "node", o.Name, "reason", err)
		return nil, nil
	}
	listener, err := listenOn(ctx, o.Bind, o.Port, "--port")
	if err != nil {
		return nil, err
	}
	return &nodeLogs{listener, authorities, credential, o.Log}, nil
}

// reaches reports whether the API server can reach a listener on bind at the address of the node.
func reaches(node, bind net.IP) bool { return bind.IsUnspecified() || bind.Equal(node) }

// port returns the port on which logs are served, or 0.
func (l *nodeLogs) port() int32 {
	if l == nil {
		return 0
	}
	if address, ok := l.listener.Addr().(*net.TCPAddr); ok {
		return int32(address.Port)
	}
	return 0
}

// serve serves until ctx ends.
func (l *nodeLogs) serve(ctx context.Context, agent kubeletapi.Agent) error {
	if l == nil {
		return nil
	}
	server := kubeletapi.Server{
		Agent: agent, Check: auth.CheckLogReader, Authorities: l.authorities, Certificate: l.credential.certificate, Log: l.log,
	}
	return server.Serve(ctx, l.listener)
}

func (l *nodeLogs) close() {
	if l != nil {
		l.listener.Close()
	}
}

// clientAuthorities returns the CAs in a kubeconfig that have signed the node's own certificate: they also identify
// the authority of the API server's client certificate. Other CAs in the kubeconfig may identify servers, but not
// clients. clientAuthorities fails if the certificate does not identify the agent, for example an administrator's.
func clientAuthorities(c *rest.Config, credential *nodeCredential, node string) (*x509.CertPool, error) {
	if credential == nil {
		return nil, errors.New("the kubeconfig has no client certificate")
	}
	own := credential.current.Load().Leaf
	if own.VerifyHostname(auth.NodeServingName(node)) != nil {
		return nil, fmt.Errorf("the client certificate is not one that node %s can serve with: have coppice up --write-node-kubeconfig write another", node)
	}
	config := rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the certificate authority: %w", err)
	}
	if len(config.CAData) == 0 {
		return nil, errors.New("the kubeconfig has no certificate authority")
	}
	trusted, err := certutil.ParseCertsPEM(config.CAData)
	if err != nil {
		return nil, fmt.Errorf("parse the certificate authority: %w", err)
	}
	trusted = slices.DeleteFunc(trusted, func(authority *x509.Certificate) bool { return own.CheckSignatureFrom(authority) != nil })
	if len(trusted) == 0 {
		return nil, errors.New("the certificate authority of the kubeconfig has not signed the client certificate")
	}
	authorities := x509.NewCertPool()
	for _, authority := range trusted {
		authorities.AddCert(authority)
	}
	return authorities, nil
}
