package page

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

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

const (
	// Session is the path that exchanges a token for a session.
	Session = Root + "session"
	// KeyHeader carries the half of a session that is not a cookie.
	KeyHeader = "X-Coppice-Key"

	cookieName  = "coppice"
	tokenLife   = 10 * time.Minute
	sessionLife = 8 * time.Hour
	// longestToken bounds the body of a request for a session, in bytes.
	longestToken = 1 << 10
)

// LinkConfig configures a LinkServer.
type LinkConfig struct {
	// Target is the server that answers, and Transport reaches it with the user's credentials.
	Target    *url.URL
	Transport http.RoundTripper
	// Changes are the paths below the API's prefix for which POST is forwarded, too.
	Changes []string
	// Demo, if set, serves the paths below DemoPath in a session; the page then shows its view of the demo.
	Demo     http.Handler
	DemoPath string
	// Now is the clock.
	Now func() time.Time
}

// LinkServer serves the page to the browser of one user on this machine, with that user's own rights.
//
// "coppice web" runs it: a server on a loopback address, which forwards the requests of the page with the
// credentials of a kubeconfig. The target server needs no sessions, the browser needs no certificate of it, and
// the page shows only objects that the user of the kubeconfig may list. A session starts like this:
//
//  1. Link makes an address with a token in its fragment, which browsers send to no server. The token works once,
//     within ten minutes.
//  2. The page sends the token to Session, and gets a session for eight hours, in two halves: a cookie that no
//     script can read (HttpOnly, SameSite=Strict), and a key that the page keeps in the storage of its own origin.
//     Both are needed. Browsers send cookies of loopback addresses to every port, so another server on this
//     machine could steal a cookie alone; storage belongs to one port.
//  3. Handler forwards requests with both halves, if they are reads below the API's prefix, or one of the few
//     changes that the page offers.
//
// A second use of a token ends the session of the first: one of the two uses was not the user's. Requests for
// another host name are refused (a page elsewhere can have its name resolve to 127.0.0.1), and so are requests
// from a page of another origin.
//
// It is safe for concurrent use.
type LinkServer struct {
	config LinkConfig
	proxy  http.Handler

	mu       sync.Mutex
	links    map[digest]*issued  // guarded by mu; by the digest of the token
	sessions map[digest]*session // guarded by mu; by the digest of the cookie
}

// digest is the digest of a secret. The server compares and keeps digests, never secrets.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// issued is a link.
type issued struct {
	ends   time.Time
	opened *digest // the session that it has opened, or nil
}

// session is a session of a browser, opened by a link.
type session struct {
	key  digest
	ends time.Time
}

// NewLinkServer returns a server.
func NewLinkServer(c LinkConfig) *LinkServer {
	if c.Target.Path == "" { // otherwise JoinPath would make relative paths
		root := *c.Target
		root.Path = "/"
		c.Target = &root
	}
	s := &LinkServer{config: c, links: map[digest]*issued{}, sessions: map[digest]*session{}}
	s.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { s.rewrite(r) },
		Transport:     c.Transport,
		FlushInterval: -1, // forward events at once
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Set-Cookie") // only this server sets cookies
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // otherwise the browser has disconnected
				http.Error(w, escape.Line("the server does not answer: "+err.Error()), http.StatusBadGateway)
			}
		},
	}
	return s
}

// Link returns a new address of the page, on the given host and port, that opens a session once.
func (s *LinkServer) Link(host string) string {
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
	return (&url.URL{Scheme: "http", Host: host, Path: Root, Fragment: "token=" + token}).String()
}

// Handler serves the page at the given host and port, to requests from this origin.
func (s *LinkServer) Handler(host string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(Root, Handler())
	mux.HandleFunc("POST "+Session, s.open)
	mux.Handle("GET "+api.Prefix+"/", s.inSession(s.proxy))
	for _, change := range s.config.Changes {
		mux.Handle("POST "+change, s.inSession(s.proxy))
	}
	if s.config.Demo != nil {
		mux.Handle(s.config.DemoPath, s.inSession(s.config.Demo))
	}
	mux.Handle("GET /{$}", http.RedirectHandler(Root, http.StatusFound))
	return Guarded(fromHere(host, mux))
}

// fromHere refuses requests for another host, and requests from pages of another origin.
func fromHere(host string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
		isNavigation := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet
		switch {
		case r.Host != host:
			http.Error(w, escape.Line("only requests to "+host+" are served here"), http.StatusForbidden)
		case origin != "" && origin != "http://"+host,
			site != "" && site != "same-origin" && !isNavigation && site != "none":
			http.Error(w, "requests from pages of other origins are not served", http.StatusForbidden)
		case path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") && r.URL.Path != "/":
			http.Error(w, "no such path", http.StatusNotFound)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// open exchanges a token for a session.
func (s *LinkServer) open(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, longestToken)).Decode(&sent); err != nil || sent.Token == "" {
		http.Error(w, `send {"token": …}, which the link has`, http.StatusBadRequest)
		return
	}
	cookie, key, problem := s.exchange(digestOf(sent.Token))
	if problem != "" {
		http.Error(w, escape.Line(problem), http.StatusGone)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: cookie, Path: Root, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"key": key, "demo": s.config.Demo != nil})
}

// exchange returns both halves of a new session, or the reason why it opens none.
func (s *LinkServer) exchange(token digest) (cookie, key, problem string) {
	now := s.config.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	link := s.links[token]
	switch {
	case link == nil, link.opened == nil && now.After(link.ends):
		return "", "", "this link is invalid or has expired: make a new one"
	case link.opened != nil:
		delete(s.sessions, *link.opened)
		return "", "", "this link was opened before. If you did not open it, somebody else has seen it; its session is closed now. Make a new link"
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

// inSession serves requests with both halves of a session, until the session ends.
func (s *LinkServer) inSession(next http.Handler) http.Handler {
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

// sessionOf returns the end of the session of a request.
func (s *LinkServer) sessionOf(r *http.Request) (ends time.Time, ok bool) {
	key := digestOf(r.Header.Get(KeyHeader))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cookie := range r.CookiesNamed(cookieName) {
		// The time of a comparison of digests reveals nothing about the secrets.
		one := s.sessions[digestOf(cookie.Value)]
		if one != nil && one.key == key && s.config.Now().Before(one.ends) {
			return one.ends, true
		}
	}
	return time.Time{}, false
}

// sent returns the browser's headers that are forwarded. Only the credentials identify the user.
func sent() []string { return []string{"Accept", "Content-Type", "Last-Event-Id", "User-Agent"} }

// rewrite addresses a request to the target.
func (s *LinkServer) rewrite(r *httputil.ProxyRequest) {
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
