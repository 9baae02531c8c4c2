package inprocess

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
)

// answer runs the handler until it has returned.
func (t transport) answer(request *http.Request) (*http.Response, error) {
	client := request.Context()
	ctx, done := context.WithCancel(detached{client})
	defer done()
	a := &answer{header: http.Header{}, ctx: ctx}
	aborted := call(t.handler, a, incoming(ctx, request)) //nolint:contextcheck // the client's context, without its values
	switch {
	case aborted != nil:
		return nil, aborted
	case client.Err() != nil:
		return nil, client.Err() // the handler's response to the cancellation is not for this client
	}
	a.WriteHeader(http.StatusOK)
	return responseOf(request, a.status, a.sentHeader, io.NopCloser(&a.body)), nil
}

// answer is the ResponseWriter of a handler that returns before the client reads.
type answer struct {
	header http.Header     // the handler's, until it is sent
	ctx    context.Context //nolint:containedctx // the context of the request, with which it ends

	status     int // 0 until the header is sent
	sentHeader http.Header
	body       bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if status < http.StatusOK || a.status != 0 {
		return // informational, or sent already
	}
	a.status, a.sentHeader = status, maps.Clone(a.header)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Flush implements http.Flusher.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// CloseNotify implements http.CloseNotifier, as exchange does.
func (a *answer) CloseNotify() <-chan bool { return closeNotify(a.ctx) }
