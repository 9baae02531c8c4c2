package mcpserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/coppice-dev/coppice/internal/tools/web"
)

// Path is the path of the protocol over HTTP.
const Path = "/mcp"

// The bounds of HTTP.
const (
	mostSessions = 32
	mostRequests = 128 // at the same time, with the streams of sessions
	mostBody     = 64 << 10
	idleSession  = 30 * time.Minute
	// sessionHeader names the session of a request.
	sessionHeader = "Mcp-Session-Id"
)

// Handler returns a handler for clients on this machine that have the token. It refuses requests for another host
// than loopback, to which a page in a browser could have its own name resolved, and requests of pages elsewhere.
func (s *Server) Handler(token string) http.Handler { return web.Local(s.RemoteHandler(token)) }

// RemoteHandler returns a handler for clients on any machine that have the token. The caller serves it over TLS.
func (s *Server) RemoteHandler(token string) http.Handler {
	g := &gate{open: map[*mcp.Server]bool{}, requests: make(chan struct{}, mostRequests), any: s.session()}
	sessions := mcp.NewStreamableHTTPHandler(g.serverOf, &mcp.StreamableHTTPOptions{
		JSONResponse: true, SessionTimeout: idleSession, MaxRequestBodyBytes: mostBody,
	})
	mux := http.NewServeMux()
	mux.Handle(Path, sameOrigin(authenticated(token, g.limit(s, sessions))))
	return mux
}

// sameOrigin refuses requests that a page of another origin makes.
func sameOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, origin := range r.Header.Values("Origin") {
			if u, err := url.Parse(origin); err != nil || u.Host == "" || u.Host != r.Host {
				http.Error(w, "requests of pages of another origin are refused", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// authenticated refuses requests without the token. Digests have the same length, so the time of a comparison tells
// nothing about the token.
func authenticated(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		if !strings.EqualFold(scheme, "Bearer") || token == "" || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "send the token of the file that \"coppice mcp\" names, as Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// gate bounds the sessions and the requests over HTTP. It is safe for concurrent use.
type gate struct {
	any      *mcp.Server   // of requests that continue a session: its sessions are none
	requests chan struct{} // has an entry for each request

	mu   sync.Mutex
	open map[*mcp.Server]bool // guarded by mu; true while the request that opens the session runs
}

// openingKey is the key of the server in the context of a request that opens a session.
type openingKey struct{}

// serverOf returns the server of a request: one of its own if the request opens a session.
func (g *gate) serverOf(r *http.Request) *mcp.Server {
	if server, ok := r.Context().Value(openingKey{}).(*mcp.Server); ok {
		return server
	}
	return g.any
}

// limit serves a request if there are not too many, and gives a new session a server of its own.
func (g *gate) limit(s *Server, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case g.requests <- struct{}{}:
			defer func() { <-g.requests }()
		default:
			http.Error(w, "too many requests at the same time", http.StatusTooManyRequests)
			return
		}
		if r.Header.Get(sessionHeader) != "" {
			next.ServeHTTP(w, r)
			return
		}
		server := s.session()
		if !g.admit(server) {
			http.Error(w, "too many sessions: end one, or wait until one has been idle for half an hour", http.StatusTooManyRequests)
			return
		}
		defer g.opened(server)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), openingKey{}, server)))
	})
}

// admit adds the server of a new session, unless there are too many sessions.
func (g *gate) admit(server *mcp.Server) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for other, isOpening := range g.open {
		if !isOpening && !hasSession(other) {
			delete(g.open, other)
		}
	}
	if len(g.open) >= mostSessions {
		return false
	}
	g.open[server] = true
	return true
}

// opened records that the request that opens a session has ended.
func (g *gate) opened(server *mcp.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[server] = false; !hasSession(server) {
		delete(g.open, server)
	}
}

func hasSession(server *mcp.Server) bool {
	for range server.Sessions() {
		return true
	}
	return false
}
