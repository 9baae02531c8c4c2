package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
)

// loopback is how the server, and the controllers beside it, reach the server:
// through its whole handler chain, but without a socket. Its configuration is needed
// before there is a handler, so the handler comes later.
type loopback struct {
	handler atomic.Pointer[http.RoundTripper]
}

// config is library's loopback configuration, with its credential and our transport.
func (l *loopback) config(library *rest.Config) *rest.Config {
	return &rest.Config{
		Host:          library.Host,
		BearerToken:   library.BearerToken,
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON},
		QPS:           -1,
		Transport:     l,
	}
}

// serve sets the handler.
func (l *loopback) serve(handler http.Handler) {
	transport := inprocess.Transport(handler)
	l.handler.Store(&transport)
}

// RoundTrip implements http.RoundTripper.
func (l *loopback) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := l.handler.Load()
	if transport == nil {
		return nil, errors.New("the API server is not assembled yet")
	}
	return (*transport).RoundTrip(r)
}

// definitionsPath is where CustomResourceDefinitions are.
const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// errAgain is what insistent makes of a conflict.
var errAgain = errors.New("the definition has changed meanwhile")

// insistent has the library's controllers of CustomResourceDefinitions try again when
// they write a status that is out of date. They would take a conflict for a sign that
// news is on its way, which it need not be: the one that deletes the instances of a
// definition does not look at its own last write, and when it has tried again before its
// cache had that, it would wait for the next change, or for 5 minutes. Any other error
// they try again after, less and less often.
func insistent(next http.RoundTripper) http.RoundTripper { return insisting{next} }

type insisting struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t insisting) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	ofStatus := r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, definitionsPath) && strings.HasSuffix(r.URL.Path, "/status")
	if err != nil || !ofStatus || response.StatusCode != http.StatusConflict {
		return response, err
	}
	status := apierrors.NewInternalError(errAgain).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return response, nil //nolint:nilerr // the conflict is an answer too
	}
	_ = response.Body.Close()
	response.StatusCode, response.Status = http.StatusInternalServerError, http.StatusText(http.StatusInternalServerError)
	response.Header.Set("Content-Type", runtime.ContentTypeJSON)
	response.Header.Del("Content-Length")
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, nil
}

// WrappedRoundTripper lets client-go find what is wrapped.
func (t insisting) WrappedRoundTripper() http.RoundTripper { return t.next }
