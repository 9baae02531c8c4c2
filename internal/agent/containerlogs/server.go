// Package containerlogs serves the logs of a node's pods to the API server, where that is
// another process. internal/containerlogs has the protocol.
//
// Logs may hold secrets. So the server answers one client only, which it knows by its
// certificate, and shows a certificate that is valid for its own node only; neither side
// sends anything before it has verified the other.
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
	// patience is how long a client may take to say who it is and what it wants.
	patience = 10 * time.Second
	// maxHeader is how large a question may be, in bytes.
	maxHeader = 16 << 10
)

// Agent has the pods of a node and their logs.
type Agent interface {
	// Pod is a pod of the node; the error of one that it does not have is a NotFound.
	Pod(namespace, name string) (*corev1.Pod, error)
	// Logs are the lines that a container of a pod has written; the error of a container
	// that there is not is a NotFound.
	Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)
}

// Server serves the logs of a node's pods to one client. All fields are required.
type Server struct {
	Agent Agent
	// Client is the common name of the certificate that the client shows.
	Client string
	// Authorities have signed the client's certificate.
	Authorities *x509.CertPool
	// Certificate is what the server shows. It is called for each connection.
	Certificate func() (*tls.Certificate, error)
	Log         *slog.Logger
}

// Serve serves until ctx ends, and closes the listener. Logs that are being followed end.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: Handler(s.Agent), ReadHeaderTimeout: patience, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), // whoever else connects is no news
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(tls.NewListener(listener, s.tls()))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve logs on %s: %w", listener.Addr(), err)
}

// tls lets nobody in but the client. Sessions are not resumed, so that each connection
// verifies both certificates.
func (s *Server) tls() *tls.Config {
	authorities := s.Authorities
	if authorities == nil {
		authorities = x509.NewCertPool() // without one, those of the machine would do
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

// Handler answers the requests that containerlogs.RequestURL describes. It does not look at who asks.
func Handler(agent Agent) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+containerlogs.PathPrefix+"{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		log, err := open(r, agent)
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		defer log.Close()
		_ = containerlogs.Stream(w, log) // what the runtime cannot read is not there, as in the API server's own process
	})
	return mux
}

// open opens the log that a request is about.
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

// statusOf is the HTTP status of an error.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok && answer.ErrStatus.Code != 0 {
		return int(answer.ErrStatus.Code)
	}
	return http.StatusInternalServerError
}
