package kubeletapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

const (
	// patience bounds the TLS handshake and the reading of the request header.
	patience = 10 * time.Second
	// maxHeader is the maximum size of a request header, in bytes. It includes the command.
	maxHeader = 1 << 20
)

// Agent provides the pods of a node, their logs, and streams to them.
type Agent interface {
	// Pod returns a pod of the node. The error is NotFound if the node has no such pod.
	Pod(namespace, name string) (*corev1.Pod, error)
	// Pods returns all pods of the node.
	Pods() ([]*corev1.Pod, error)
	// Logs returns the lines that a container of a pod has written. The error is NotFound if there
	// is no such container.
	Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)
	// Stream returns the URL at which the container runtime serves a stream, on this machine. The
	// error is NotFound if there is no such container.
	Stream(ctx context.Context, pod *corev1.Pod, r StreamRequest) (*url.URL, error)
}

// Server serves the logs and streams of a node's pods to one client. All fields are required.
type Server struct {
	Agent Agent
	// Check authorizes the client: it returns an error for any other than the API server. verified are
	// the chains of its certificate to Authorities.
	Check func(verified [][]*x509.Certificate) error
	// Authorities are the CAs that the client's certificate must lead to.
	Authorities *x509.CertPool
	// Certificate returns the server's certificate. It is called for each connection.
	Certificate func() (*tls.Certificate, error)
	Log         *slog.Logger
}

// Serve serves until ctx ends, and then closes the listener, all streams, and the logs that clients follow.
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
	return fmt.Errorf("serve logs and streams on %s: %w", listener.Addr(), err)
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
			if s.Check == nil {
				return errors.New("there is no client to answer")
			}
			return s.Check(c.VerifiedChains)
		},
	}
}

// Handler serves the requests that LogURL and StreamRequest.URL describe, /healthz and /pods. It
// does not authenticate them.
func Handler(agent Agent) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) { listPods(w, agent) })
	mux.HandleFunc("GET "+LogPath+"{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		log, err := open(r, agent)
		if err != nil {
			http.Error(w, escape.Line(err.Error()), statusOf(err))
			return
		}
		defer log.Close()
		_ = WriteLog(w, log) // logs that the runtime cannot read are reported as missing, as in the API server's own process
	})
	for _, kind := range StreamKinds() {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			mux.Handle(method+" "+kind.Pattern(), streams{agent, kind})
		}
	}
	return mux
}

// listPods writes the pods of the node as a PodList.
func listPods(w http.ResponseWriter, agent Agent) {
	pods, err := agent.Pods()
	if err != nil {
		http.Error(w, escape.Line(err.Error()), statusOf(err))
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: make([]corev1.Pod, 0, len(pods))}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
}

// open opens the log that a request asks for.
func open(r *http.Request, agent Agent) (io.ReadCloser, error) {
	values := r.URL.Query()
	o, err := ParseLogOptions(values)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	pod, err := podOf(r, agent)
	if err != nil {
		return nil, err
	}
	o.Container = r.PathValue("container")
	return agent.Logs(r.Context(), pod, o)
}

// podOf returns the pod in the path of a request, if its UID matches the request.
func podOf(r *http.Request, agent Agent) (*corev1.Pod, error) {
	pod, err := agent.Pod(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		return nil, err
	}
	if !matchesUID(r.URL.Query(), pod.UID) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	return pod, nil
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok && answer.ErrStatus.Code != 0 {
		return int(answer.ErrStatus.Code)
	}
	return http.StatusInternalServerError
}
