// Package link serves the page to one person's browser on this machine, with that person's own rights.
//
// "coppice web" runs it: a server on a loopback address, which has the credentials of a kubeconfig and sends with
// them on what the page asks. The server that answers needs no sessions, the browser needs no certificate of
// it, and nobody is told more than who has made the link may list. The way in:
//
//  1. Link makes an address with a token in its fragment, which browsers send to no server, and which works once,
//     for ten minutes.
//  2. The page sends the token to Session, and gets a session for eight hours, in two halves: a cookie that no
//     script can read (HttpOnly, SameSite=Strict), and a key that the page keeps in the storage of its own origin.
//     Both are needed. Cookies of loopback addresses are sent to every port, so that a cookie alone could be
//     caught by another server on this machine; storage belongs to one port.
//  3. Requests with both are sent on (Handler), if they are reads below the API's prefix, or one of the few
//     changes that the page offers.
//
// A token that comes a second time ends the session of the first: one of the two was not meant to come. Requests
// for another host name are refused (a page elsewhere can have its name resolve to 127.0.0.1), and so are those
// that a page of another origin makes.
package link

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/coppice-dev/coppice/internal/tools/web/api"
	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

const (
	// Session is the path at which a token is exchanged for a session.
	Session = page.Root + "session"
	// KeyHeader carries the half of a session that is no cookie.
	KeyHeader = "X-Coppice-Key"

	cookieName  = "coppice"
	tokenLife   = 10 * time.Minute
	sessionLife = 8 * time.Hour
	// longestToken bounds what is read of a request for a session.
	longestToken = 1 << 10
)

// Config is what a Server needs.
type Config struct {
	// Target is the server that answers, and Transport reaches it with somebody's credentials.
	Target    *url.URL
	Transport http.RoundTripper
	// Changes are the paths below the API's prefix at which POST is sent on, too.
	Changes []string
	// Demo, if set, serves the paths below DemoPath, to those with a session, whom the page shows its view of them.
	Demo     http.Handler
	DemoPath string
	// Now is the clock.
	Now func() time.Time
}

// Server serves the page, and sends on what it asks. It is safe for concurrent use.
type Server struct {
	config Config
	proxy  http.Handler

	mu       sync.Mutex
	links    map[digest]*issued  // guarded by mu; by the digest of the token
	sessions map[digest]*session // guarded by mu; by the digest of the cookie
}

// digest is that of a secret: what is compared and kept is not the secret itself.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// issued is a link.
type issued struct {
	ends   time.Time
	opened *digest // the session that it has opened
}

// session is what a link has opened.
type session struct {
	key  digest
	ends time.Time
}

// New returns a server.
func New(c Config) *Server {
	if c.Target.Path == "" { // or else what is joined with it would be relative
		root := *c.Target
		root.Path = "/"
		c.Target = &root
	}
	s := &Server{config: c, links: map[digest]*issued{}, sessions: map[digest]*session{}}
	s.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { s.rewrite(r) },
		Transport:     c.Transport,
		FlushInterval: -1, // events are sent as they come
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Set-Cookie") // cookies here are this server's
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // or else the browser has left
				http.Error(w, "the server does not answer: "+err.Error(), http.StatusBadGateway)
			}
		},
	}
	return s
}

// Link returns a new address of the page, on the given host and port, that opens a session once.
func (s *Server) Link(host string) string {
	token := rand.Text()
	now := s.config.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, l := range s.links {
		if l.opened == nil && now.After(l.ends) {
			delete(s.links, d)
		}
	}
	s.links[digestOf(token)] = &issued{ends: now.Add(tokenLife)}
	return (&url.URL{Scheme: "http", Host: host, Path: page.Root, Fragment: "token=" + token}).String()
}

// Handler serves the page at the given host and port, to requests from this origin.
func (s *Server) Handler(host string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(page.Root, page.Handler())
	mux.HandleFunc("POST "+Session, s.open)
	mux.Handle("GET "+api.Prefix+"/", s.inSession(s.proxy))
	for _, change := range s.config.Changes {
		mux.Handle("POST "+change, s.inSession(s.proxy))
	}
	if s.config.Demo != nil {
		mux.Handle(s.config.DemoPath, s.inSession(s.config.Demo))
	}
	mux.Handle("GET /{$}", http.RedirectHandler(page.Root, http.StatusFound))
	return page.Guarded(fromHere(host, mux))
}

// fromHere refuses requests for another host, and those of pages of another origin.
func fromHere(host string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
		isNavigation := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet
		switch {
		case r.Host != host:
			http.Error(w, "only requests to "+host+" are served here", http.StatusForbidden)
		case origin != "" && origin != "http://"+host,
			site != "" && site != "same-origin" && !isNavigation && site != "none":
			http.Error(w, "requests of pages from elsewhere are not served", http.StatusForbidden)
		case path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") && r.URL.Path != "/":
			http.Error(w, "no such path", http.StatusNotFound)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// open exchanges a token for a session.
func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, longestToken)).Decode(&sent); err != nil || sent.Token == "" {
		http.Error(w, `send {"token": …}, which the link has`, http.StatusBadRequest)
		return
	}
	cookie, key, problem := s.exchange(digestOf(sent.Token))
	if problem != "" {
		http.Error(w, problem, http.StatusGone)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: cookie, Path: page.Root, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"key": key, "demo": s.config.Demo != nil})
}

// exchange returns both halves of a new session, or why there is none.
func (s *Server) exchange(token digest) (cookie, key, problem string) {
	now := s.config.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	link := s.links[token]
	switch {
	case link == nil, link.opened == nil && now.After(link.ends):
		return "", "", "this link has expired, or is none: make a new one"
	case link.opened != nil:
		delete(s.sessions, *link.opened)
		return "", "", "this link was opened before. If that was not you, somebody else has seen it: what it had opened is closed now. Make a new one"
	}
	cookie, key = rand.Text(), rand.Text()
	opened := digestOf(cookie)
	link.opened = &opened
	for d, one := range s.sessions {
		if now.After(one.ends) {
			delete(s.sessions, d)
		}
	}
	s.sessions[opened] = &session{key: digestOf(key), ends: now.Add(sessionLife)}
	return cookie, key, ""
}

// inSession serves requests that have both halves of a session, for as long as that lasts.
func (s *Server) inSession(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		ends, ok := s.sessionOf(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Link")
			http.Error(w, `there is no session here: open a link of "coppice web"`, http.StatusUnauthorized)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), ends.Sub(s.config.Now()))
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// sessionOf returns when the session of a request ends.
func (s *Server) sessionOf(r *http.Request) (ends time.Time, ok bool) {
	key := digestOf(r.Header.Get(KeyHeader))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cookie := range r.CookiesNamed(cookieName) {
		// That digests are compared tells no secret by the time it takes.
		one := s.sessions[digestOf(cookie.Value)]
		if one != nil && one.key == key && s.config.Now().Before(one.ends) {
			return one.ends, true
		}
	}
	return time.Time{}, false
}

// sent are the headers of the browser that the server gets. Who asks is said by the credentials alone.
func sent() []string { return []string{"Accept", "Content-Type", "Last-Event-Id", "User-Agent"} }

// rewrite sends a request to the server that answers.
func (s *Server) rewrite(r *httputil.ProxyRequest) {
	header := http.Header{}
	for _, name := range sent() {
		if values := r.In.Header.Values(name); len(values) > 0 {
			header[name] = values
		}
	}
	r.Out.Header = header
	r.Out.URL = s.config.Target.JoinPath(r.In.URL.EscapedPath())
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = ""
}
