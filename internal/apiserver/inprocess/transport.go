// Package inprocess is an HTTP transport to a handler in the same process, without sockets, TLS or
// framing. The control plane's own controllers, and the API server itself (Loopback), use it to reach the server
// through its whole handler chain.
//
// RoundTrip runs the handler of a GET on its own goroutine, as a server does, and returns as soon as the
// handler has sent its header. The body is a buffer of bounded size between the handler, which writes, and
// the client, which reads: a watch whose client does not read blocks the handler, as it would on a socket.
// Closing the body, or ending the request's context, ends the handler's context.
//
// The handlers of writes run on the caller's goroutine (answer.go): their responses are short and come at
// once. A goroutine for each write, with a stack that has to grow each time, would cost more than it is
// worth.
package inprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
)

// bufferSize is the number of bytes that a handler can write ahead of its client.
const bufferSize = 1 << 20

// Transport returns a RoundTripper that calls handler. It is safe for concurrent use.
func Transport(handler http.Handler) http.RoundTripper { return transport{handler} }

type transport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodDelete, http.MethodPatch, http.MethodPost, http.MethodPut:
		return t.answer(request)
	default:
		return t.stream(request)
	}
}

// stream returns while the handler may still write to the body.
func (t transport) stream(request *http.Request) (*http.Response, error) { //nolint:contextcheck // the handler has the client's context, without its values
	ctx, cancel := context.WithCancel(request.Context())
	x := &exchange{header: http.Header{}, sent: make(chan struct{}), ctx: ctx, cancel: cancel}
	x.changed.L = &x.mu
	// Readers and writers that wait on the buffer must notice the end of the request.
	context.AfterFunc(ctx, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.changed.Broadcast()
	})
	handling, done := context.WithCancel(detached{ctx})
	go func() {
		defer done()
		x.serve(t.handler, incoming(handling, request))
	}()
	select {
	case <-x.sent:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return responseOf(request, x.status, x.sentHeader, x), nil
}

// responseOf returns a response in the form that the client expects.
func responseOf(request *http.Request, status int, header http.Header, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: header, Body: body, ContentLength: -1, Request: request,
	}
}

// detached is a context that ends with the client's context, but has only the values for Is and MayLag. The
// client may be a handler of the same server, and the values of its context, such as the audit event,
// belong to its own request, not to the one that it sends. A socket carries no values either.
type detached struct{ context.Context } //nolint:containedctx // it is a context itself

// Value implements context.Context.
func (d detached) Value(key any) any {
	switch key {
	case own{}:
		return true
	case lag{}:
		return d.Context.Value(prompt{}) == nil
	default:
		return nil
	}
}

type (
	// own is the key of the value that marks a request of this process in a handler's context.
	own struct{}
	// lag is the key of the value in a handler's context that says whether the client tolerates lag.
	lag struct{}
	// prompt is the key of the value in a client's context that says that it tolerates none.
	prompt struct{}
)

// Is reports whether ctx is the context of a request through this transport, so from this process.
func Is(ctx context.Context) bool {
	is, _ := ctx.Value(own{}).(bool)
	return is
}

// MayLag reports whether ctx is the context of a request through this transport whose client is not Prompt.
// The client reads without delay, and tolerates events of a watch that are a tenth of a second late.
func MayLag(ctx context.Context) bool {
	may, _ := ctx.Value(lag{}).(bool)
	return may
}

// Prompt returns a RoundTripper for a client that compares the events of different watches: none of them
// may lag behind the others.
func Prompt(next http.RoundTripper) http.RoundTripper { return promptly{next} }

type promptly struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p promptly) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.next.RoundTrip(r.WithContext(context.WithValue(r.Context(), prompt{}, true)))
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (p promptly) WrappedRoundTripper() http.RoundTripper { return p.next }

// AfterFunc saves package context a goroutine for each request.
func (d detached) AfterFunc(do func()) (stop func() bool) { return context.AfterFunc(d.Context, do) }

// incoming returns the request in the form that a server receives.
func incoming(ctx context.Context, request *http.Request) *http.Request {
	r := request.Clone(ctx)
	r.RequestURI = r.URL.RequestURI()
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.RemoteAddr = "127.0.0.1:0"
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	return r
}

// exchange is one request in flight: the handler's ResponseWriter and the client's response body.
type exchange struct {
	header http.Header     // the handler's, until it is sent
	ctx    context.Context //nolint:containedctx // the context of the request, with which it ends
	cancel context.CancelFunc

	sendOnce   sync.Once
	sent       chan struct{} // closed when status and sentHeader are set
	status     int
	sentHeader http.Header

	mu      sync.Mutex
	changed sync.Cond
	buffer  bytes.Buffer // guarded by mu
	done    error        // guarded by mu: why no more data comes; io.EOF when the handler has returned
}

func (x *exchange) serve(handler http.Handler, r *http.Request) {
	end := call(handler, x, r)
	x.WriteHeader(http.StatusOK)
	x.mu.Lock()
	defer x.mu.Unlock()
	if end == nil {
		end = x.ctx.Err() // the request was cancelled, whether or not the handler panicked
	}
	if end == nil {
		end = io.EOF
	}
	x.done = end
	x.changed.Broadcast()
}

// call calls a handler, which may panic to abort a response that it cannot finish.
func call(handler http.Handler, w http.ResponseWriter, r *http.Request) (aborted error) {
	defer func() {
		switch broken := recover(); broken {
		case nil:
		case http.ErrAbortHandler: // a panic value; net/http compares it in the same way
			aborted = errors.New("the answer was aborted")
		default:
			aborted = fmt.Errorf("the handler panicked: %v", broken)
		}
	}()
	handler.ServeHTTP(w, r)
	return nil
}

// Header implements http.ResponseWriter.
func (x *exchange) Header() http.Header { return x.header }

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if status < http.StatusOK {
		return // informational: the final response follows
	}
	x.sendOnce.Do(func() {
		x.status, x.sentHeader = status, maps.Clone(x.header)
		close(x.sent)
	})
}

// Write implements http.ResponseWriter.
func (x *exchange) Write(p []byte) (int, error) {
	x.WriteHeader(http.StatusOK)
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.buffer.Len() >= bufferSize && x.ctx.Err() == nil {
		x.changed.Wait()
	}
	if err := x.ctx.Err(); err != nil {
		return 0, err
	}
	x.changed.Broadcast()
	return x.buffer.Write(p)
}

// Flush implements http.Flusher. It only sends the header: everything written can already be read.
func (x *exchange) Flush() { x.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier: without it, k8s.io/apiserver does not recognise a writer that
// can flush.
func (x *exchange) CloseNotify() <-chan bool { return closeNotify(x.ctx) }

func closeNotify(ctx context.Context) <-chan bool {
	closed := make(chan bool, 1)
	context.AfterFunc(ctx, func() { closed <- true })
	return closed
}

// Read implements io.Reader for the client.
func (x *exchange) Read(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.buffer.Len() == 0 && x.done == nil && x.ctx.Err() == nil {
		x.changed.Wait()
	}
	if x.buffer.Len() > 0 {
		x.changed.Broadcast()
		return x.buffer.Read(p)
	}
	if x.done != nil {
		return 0, x.done
	}
	return 0, x.ctx.Err()
}

// Close implements io.Closer for the client.
func (x *exchange) Close() error {
	x.cancel()
	return nil
}
