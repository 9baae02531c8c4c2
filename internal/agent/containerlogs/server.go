// Package containerlogs serves the logs of a node's pods to an API server in another process.
// Package internal/containerlogs documents the protocol.
//
// Logs may contain secrets. The server therefore answers a single client, which it identifies by
// its certificate, and presents a certificate that is valid for its own node only. Neither side
// sends any data before it has verified the other.
package containerlogs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/containerlogs"
)

const (
	// patience bounds the TLS handshake and the reading of the request header.
	patience = 10 * time.Second
	// maxHeader is the largest request header that is accepted, in bytes.
	maxHeader = 16 << 10
)

// Agent provides the pods of a node and their logs.
type Agent interface {
	// Pod returns a pod of the node. The error is NotFound if the node has no such pod.
	Pod(namespace, name string) (*corev1.Pod, error)
	// Logs returns the lines that a container of a pod has written. The error is NotFound if there
	// is no such container.
	Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)
}

// Server serves the logs of a node's pods to one client. All fields are required.
type Server struct {
	Agent Agent
	// Client is the common name in the client's certificate.
	Client string
	// Authorities are the CAs that may have signed the client's certificate.
	Authorities *x509.CertPool
	// Certificate returns the server's certificate. It is called for each connection.
	Certificate func() (*tls.Certificate, error)
	Log         *slog.Logger
}

// Serve serves until ctx ends, and then closes the listener. Logs that are being followed end then.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: Handler(s.Agent), ReadHeaderTimeout: patience, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), // failed handshakes of other clients are not worth more than debug level
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(tls.NewListener(listener, s.tls()))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve logs on %s: %w", listener.Addr(), err)
}

// tls accepts only the client. Sessions are not resumed, so that both certificates are verified for
// each connection.
func (s *Server) tls() *tls.Config {
	authorities := s.Authorities
	if authorities == nil {
		authorities = x509.NewCertPool() // nil would mean the system's CAs
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, NextProtos: []string{"http/1.1"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authorities,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.VerifiedChains) == 0 || s.Client == "" || c.VerifiedChains[0][0].Subject.CommonName != s.Client {
				return errors.New("the client is not the API server")
			}
			return nil
		},
	}
}

// Handler serves the requests that containerlogs.RequestURL describes. It does not authenticate
// them.
func Handler(agent Agent) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+containerlogs.PathPrefix+"{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		log, err := open(r, agent)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		defer log.Close()
		_ = containerlogs.Stream(w, log) // logs that the runtime cannot read are reported as missing, as in the API server's own process
	})
	return mux
}

// open opens the log that a request asks for.
func open(r *http.Request, agent Agent) (io.ReadCloser, error) {
	values := r.URL.Query()
	o, err := containerlogs.ParseOptions(values)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	pod, err := agent.Pod(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		return nil, err
	}
	if !containerlogs.MatchesUID(values, pod.UID) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	o.Container = r.PathValue("container")
	return agent.Logs(r.Context(), pod, o)
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok && answer.ErrStatus.Code != 0 {
		return int(answer.ErrStatus.Code)
	}
	return http.StatusInternalServerError
}
