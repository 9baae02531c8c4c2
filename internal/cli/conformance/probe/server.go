package probe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Server has an administrator's clients for an API server under test. It is safe for concurrent use.
type Server struct {
	Config   *rest.Config
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
	Kube     kubernetes.Interface

	// Patience bounds the time of one condition; 0 means DefaultPatience.
	Patience time.Duration
	// Upstream are the sides whose differences in docs/semantics.md are accepted.
	Upstream Side
}

// NewServer returns a Server with clients that do not limit the rate of requests.
func NewServer(config *rest.Config) (*Server, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "conformance"
	config.WarningHandler = rest.NoWarnings{}
	s := &Server{Config: rest.CopyConfig(config)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return recording{next} })
	var err error
	if s.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if s.Metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if s.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return s, nil
}

// listOne returns the options of a list of at most one object.
func listOne() metav1.ListOptions { return metav1.ListOptions{Limit: 1} }

// Serves waits until the server serves a resource.
func (w *Space) Serves(resource schema.GroupVersionResource) {
	w.T.Helper()
	w.Until(fmt.Sprintf("that %s are served", resource.GroupResource()), func() string {
		if _, err := w.Server.Dynamic.Resource(resource).List(w.T.Context(), listOne()); err != nil {
			return err.Error()
		}
		return ""
	})
}

// IsGone reports whether an error means that the object does not exist.
func IsGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsGone(err) }

// Record keeps the requests of its context, for the report of a failure. It is safe for
// concurrent use.
type Record struct {
	mu       sync.Mutex
	requests []Request // guarded
}

// Request is one request of a check, or several equal ones in a row.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	// Body is the body of a DELETE or PATCH, if it is JSON.
	Body string `json:"body,omitempty"`
	// Code is the HTTP status, or 0 if there was no answer.
	Code  int `json:"code"`
	Times int `json:"times"`
}

// String returns the request as a line.
func (r Request) String() string {
	line := r.Method + " " + r.Path
	if r.Body != "" {
		line += " " + r.Body
	}
	line += fmt.Sprintf(": %d", r.Code)
	if r.Times > 1 {
		line += fmt.Sprintf(" (%d times)", r.Times)
	}
	return line
}

// longestRecord bounds the number of requests in a Record, and longestBody the kept bytes of a body.
const (
	longestRecord = 200
	longestBody   = 400
)

type recordKey struct{}

// With returns a context whose requests are recorded.
func (r *Record) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// Requests returns the last requests, oldest first.
func (r *Record) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.requests...)
}

func (r *Record) note(one Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.requests); n > 0 {
		last := &r.requests[n-1]
		if last.Method == one.Method && last.Path == one.Path && last.Body == one.Body && last.Code == one.Code {
			last.Times++
			return
		}
	}
	one.Times = 1
	r.requests = append(r.requests, one)
	if len(r.requests) > longestRecord {
		r.requests = r.requests[1:]
	}
}

// recording is a transport that notes requests in the Record of their context.
type recording struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t recording) RoundTrip(r *http.Request) (*http.Response, error) {
	record, ok := r.Context().Value(recordKey{}).(*Record)
	if !ok {
		return t.next.RoundTrip(r)
	}
	one := Request{Method: r.Method, Path: r.URL.RequestURI()}
	if r.Body != nil && (r.Method == http.MethodDelete || r.Method == http.MethodPatch) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read the body of a request: %w", err)
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.HasPrefix(body, []byte("{")) {
			one.Body = string(bytes.TrimSpace(body[:min(len(body), longestBody)]))
		}
	}
	response, err := t.next.RoundTrip(r)
	if err == nil {
		one.Code = response.StatusCode
	}
	record.note(one)
	return response, err
}

// WrappedRoundTripper returns the transport behind this one, which client-go asks for.
func (t recording) WrappedRoundTripper() http.RoundTripper { return t.next }
