package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// answeredWithin bounds the time in which a client must read a part of an answer. Answers about objects have shorter bounds.
	answeredWithin = 2 * time.Minute
	// answeredInAll bounds the time in which a client must read an answer that is no stream, since its first part.
	answeredInAll = 10 * time.Minute
)

// serveOn returns a function that serves until its context ends. It has no http.Server.WriteTimeout, which begins with the
// request: a call of an agent may take longer, and a stream has no end.
func serveOn(listener net.Listener, handler http.Handler) func(context.Context) error {
	server := &http.Server{Handler: boundingWrites(handler), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	return func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
		}
		return nil
	}
}

// boundingWrites returns a handler that ends the answers to clients that do not read them, however long the answers take to
// begin.
func boundingWrites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bounded := &boundedWriter{ResponseWriter: w}
		next.ServeHTTP(bounded, r)
		bounded.begin() // the server writes the rest
	})
}

// boundedWriter gives each write a deadline, until the handler sets one of its own.
type boundedWriter struct {
	http.ResponseWriter

	hasOwn   bool
	isStream bool      // the handler has flushed a part
	began    time.Time // when the first part was written
}

// begin sets the deadline of the next write. The server lifts it before the next request.
func (w *boundedWriter) begin() {
	if w.hasOwn {
		return
	}
	now := time.Now()
	if w.began.IsZero() {
		w.began = now
	}
	deadline := now.Add(answeredWithin)
	if last := w.began.Add(answeredInAll); !w.isStream && last.Before(deadline) {
		deadline = last
	}
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
}

// Write implements http.ResponseWriter.
func (w *boundedWriter) Write(text []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(text)
}

// FlushError flushes for an http.ResponseController.
func (w *boundedWriter) FlushError() error {
	w.isStream = true
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// SetWriteDeadline sets a deadline for an http.ResponseController. The deadline of the handler counts for the rest of the
// answer.
func (w *boundedWriter) SetWriteDeadline(deadline time.Time) error {
	w.hasOwn = true
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline)
}

// Unwrap returns the other abilities for an http.ResponseController.
func (w *boundedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
