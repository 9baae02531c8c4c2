package kubeletapi

import (
	"bufio"
	"context"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// streams serves the streams of one kind: it hands the upgraded connection on to the container
// runtime.
type streams struct {
	agent Agent
	kind  StreamKind
}

// ServeHTTP implements http.Handler.
func (s streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := ParseStream(s.kind, r.PathValue("container"), r.URL.Query())
	if err != nil {
		s.Error(w, r, apierrors.NewBadRequest(err.Error()))
		return
	}
	pod, err := podOf(r, s.agent)
	if err != nil {
		s.Error(w, r, err)
		return
	}
	to, err := s.agent.Stream(r.Context(), pod, request)
	if err != nil {
		s.Error(w, r, err)
		return
	}
	// A separate transport: the default one would read a proxy from the environment.
	proxy.NewUpgradeAwareHandler(to, &http.Transport{}, false, true, s).ServeHTTP(endingWriter{w, r.Context()}, r)
}

// Error implements proxy.ErrorResponder.
func (s streams) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, escape.Line(err.Error()), statusOf(err))
}

// endingWriter is a response whose connection ends with a context. A server does not close upgraded connections.
type endingWriter struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // that of the request
}

// Hijack implements http.Hijacker.
func (w endingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		context.AfterFunc(w.ctx, func() { conn.Close() })
	}
	return conn, buffer, err
}
