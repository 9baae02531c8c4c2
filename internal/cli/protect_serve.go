package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

// protectServer are the flags of the webhooks that coppice collect serves: for protected objects, and for deletions that
// need a confirmation.
type protectServer struct {
	address, certFile, keyFile, callersFile string

	confirm   protection.Limits
	namespace string // of the collector; set after the flags
}

func (f *protectServer) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.address, "protect-address", "0", "address and port of the webhook for protected objects, such as :10272 (docs/protect.md); 0 for none")
	flags.StringVar(&f.certFile, "protect-cert-file", "", "certificate of the webhook, in PEM; it may be replaced while in use")
	flags.StringVar(&f.keyFile, "protect-key-file", "", "key of that certificate, in PEM")
	flags.StringVar(&f.callersFile, "protect-client-ca-file", "", "authority of the client certificates of the API servers that call the webhook, in PEM")
	addConfirm(flags, &f.confirm)
}

// addConfirm adds the flag with the limits of unconfirmed deletions (R32).
func addConfirm(flags *pflag.FlagSet, limits *protection.Limits) {
	flags.Func("confirm-deletions", `deletions that need a confirmation, such as "more-than=50; kinds=namespaces" (docs/protect.md)`, func(text string) (err error) {
		*limits, err = protection.ParseLimits(text)
		return err
	})
}

// check returns an error if the flags contradict each other.
func (f *protectServer) check() error {
	if f.address == "0" || f.address == "" {
		if f.certFile != "" || f.keyFile != "" || f.callersFile != "" {
			return usageError{errors.New("--protect-cert-file, --protect-key-file and --protect-client-ca-file are for the webhook: set its address with --protect-address")}
		}
		if f.confirm.Any() {
			return usageError{errors.New("--confirm-deletions is for the webhook: set its address with --protect-address")}
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(f.address); err != nil {
		return usageError{fmt.Errorf("--protect-address %s is not an address with a port, such as :10272", f.address)}
	}
	if f.certFile == "" || f.keyFile == "" {
		return usageError{errors.New("--protect-address needs --protect-cert-file and --protect-key-file: API servers call webhooks with TLS")}
	}
	if f.callersFile == "" {
		return usageError{errors.New("--protect-address needs --protect-client-ca-file: the webhook answers API servers only, by their client certificate; " +
			"where you cannot give them one, use the policy of deploy/kustomize/protect, see docs/protect.md")}
	}
	return nil
}

// listen opens the address, so that mistakes are errors at the start, and returns functions that serve on it. Every
// replica serves the webhook, not only the leader.
func (f *protectServer) listen(ctx context.Context, c metrics.Controllers, config *rest.Config, log *slog.Logger) ([]func(context.Context) error, error) {
	if f.address == "0" || f.address == "" {
		return nil, nil
	}
	if _, err := f.tls(nil); err != nil {
		return nil, err
	}
	handler, err := protected.NewHandler(ctx, config, c.Carries)
	if err != nil {
		return nil, err
	}
	serving := []func(context.Context) error{}
	if f.confirm.Any() {
		confirm, observe, err := protected.NewConfirmHandler(ctx, config, f.confirm, f.namespace, log)
		if err != nil {
			return nil, err
		}
		both := http.NewServeMux()
		both.Handle("/", handler)
		both.Handle(protected.ConfirmPath, confirm)
		handler, serving = both, append(serving, observe)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; choose another address with --protect-address, 0 for none", f.address, ask.CauseOf(err))
	}
	log.InfoContext(ctx, "serving the webhook for protected objects", "address", listener.Addr().String())
	listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: f.tls})
	return append(serving, serveOn(listener, handler)), nil
}

// tls reads the certificates anew for each connection, because they may have been renewed; API servers keep their
// connections open. It rejects callers without a certificate of the authority: the webhook trusts the user that a
// review names.
func (f *protectServer) tls(*tls.ClientHelloInfo) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		return nil, fmt.Errorf("read --protect-cert-file and --protect-key-file: %w", err)
	}
	authority, err := os.ReadFile(f.callersFile)
	if err != nil {
		return nil, fmt.Errorf("read --protect-client-ca-file: %w", err)
	}
	callers := x509.NewCertPool()
	if !callers.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("--protect-client-ca-file: %s has no certificate in PEM", f.callersFile)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: callers, SessionTicketsDisabled: true,
	}, nil
}
