package system

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/utils/clock"
)

// rereadEvery is the interval at which a kubeconfig is read again. A kubeconfig is renewed four months
// before its certificate expires.
const rereadEvery = 10 * time.Minute

// The timeout and keep-alive of connections, as in client-go.
const (
	dialTimeout   = 30 * time.Second
	dialKeepAlive = 30 * time.Second
)

// nodeCredential is the certificate in a node's kubeconfig, which the node's agent uses as a client and as
// a server. It is replaced while the agent runs when the kubeconfig is renewed. It is nil if the kubeconfig
// has no certificate.
type nodeCredential struct {
	read        func() (*rest.Config, error) // nil: it is never renewed
	connections *connrotation.Dialer         // to the API server
	log         *slog.Logger

	current atomic.Pointer[tls.Certificate]
}

// loadCredential returns the certificate of a kubeconfig.
func loadCredential(o NodeOptions) (*nodeCredential, error) {
	certificate, err := certificateOf(o.Config)
	if certificate == nil || err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialKeepAlive}
	c := &nodeCredential{read: o.Reread, connections: connrotation.NewDialer(dialer.DialContext), log: o.Log}
	c.current.Store(certificate)
	return c, nil
}

// certificateOf returns the client certificate of a configuration, or nil if it has none.
func certificateOf(config *rest.Config) (*tls.Certificate, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the credential: %w", err)
	}
	if len(config.CertData) == 0 {
		return nil, nil // a token, for example
	}
	certificate, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, fmt.Errorf("load the client certificate: %w", err)
	}
	return &certificate, nil
}

// client returns a client of the API server that uses the current certificate for each new
// connection.
func (c *nodeCredential) client(config *rest.Config) (kubernetes.Interface, error) {
	if c == nil {
		return kubernetes.NewForConfig(config)
	}
	config = rest.CopyConfig(config)
	config.Dial = c.connections.DialContext
	config.CertFile, config.KeyFile, config.CertData, config.KeyData = "", "", nil, nil
	settings, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	settings.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: c.certificate}
	connect, err := transport.New(settings)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfigAndClient(config, &http.Client{Transport: connect, Timeout: config.Timeout})
}

// certificate returns the current certificate.
func (c *nodeCredential) certificate() (*tls.Certificate, error) { return c.current.Load(), nil }

// keepFresh reads the kubeconfig periodically, until ctx ends.
func (c *nodeCredential) keepFresh(ctx context.Context, clk clock.WithTicker) {
	if c == nil || c.read == nil {
		return
	}
	ticker := clk.NewTicker(rereadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		replaced, err := c.reread()
		switch {
		case err != nil:
			c.log.WarnContext(ctx, "kubeconfig not reloaded", "error", err)
		case replaced:
			c.log.InfoContext(ctx, "client certificate replaced", "until", c.current.Load().Leaf.NotAfter)
		}
	}
}

// reread adopts the kubeconfig's certificate if it is a new one of the same user, and closes the
// connections: the server authenticates each connection once, with the certificate at its start.
func (c *nodeCredential) reread() (replaced bool, err error) {
	config, err := c.read()
	if err != nil {
		return false, err
	}
	certificate, err := certificateOf(config)
	if err != nil {
		return false, err
	}
	current := c.current.Load()
	switch {
	case certificate == nil:
		return false, errors.New("it no longer has a client certificate")
	case bytes.Equal(certificate.Leaf.Raw, current.Leaf.Raw):
		return false, nil
	case !bytes.Equal(certificate.Leaf.RawSubject, current.Leaf.RawSubject):
		return false, fmt.Errorf("it has the certificate of %s now, and had that of %s", certificate.Leaf.Subject, current.Leaf.Subject)
	}
	c.current.Store(certificate)
	c.connections.CloseAll()
	return true, nil
}
