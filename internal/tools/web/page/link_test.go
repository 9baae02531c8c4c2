package page

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// browser is a client with one session at most.
type browser struct {
	t       *testing.T
	handler http.Handler
	cookie  *http.Cookie
	key     string
}

const here = "127.0.0.1:8451"

// credentials adds the header that only the server may add.
type credentials struct{ next http.RoundTripper }

func (c credentials) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer ours")
	return c.next.RoundTrip(r)
}

// serve starts a target that echoes requests below a prefix, and returns a Server that forwards to it.
func serve(t *testing.T, now func() time.Time) (*LinkServer, *browser) {
	t.Helper()
	return serveBelow(t, now, "/prefix")
}

func serveBelow(t *testing.T, now func() time.Time, prefix string) (*LinkServer, *browser) {
	t.Helper()
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", "theirs=1")
		if r.URL.Path == "/prefix/coppice/v1/watch" {
			_, _ = io.WriteString(w, "event: one\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"url": r.URL.String(), "method": r.Method, "headers": r.Header})
	}))
	t.Cleanup(answers.Close)
	target, err := url.Parse(answers.URL + prefix)
	if err != nil {
		t.Fatal(err)
	}
	s := NewLinkServer(LinkConfig{Target: target, Transport: credentials{http.DefaultTransport}, Changes: []string{"/coppice/v1/resume"}, Now: now})
	return s, &browser{t: t, handler: s.Handler(here)}
}

func (b *browser) send(method, path, body string, headers ...string) *http.Response {
	b.t.Helper()
	r := httptest.NewRequest(method, "http://"+here+path, strings.NewReader(body))
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	if b.key != "" {
		r.Header.Set(KeyHeader, b.key)
	}
	for n := 0; n < len(headers); n += 2 {
		if headers[n] == "Host" {
			r.Host = headers[n+1]
		} else {
			r.Header.Set(headers[n], headers[n+1])
		}
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r)
	return w.Result()
}

// open opens a link, and returns the status code.
func (b *browser) open(link string) int {
	b.t.Helper()
	_, token, ok := strings.Cut(link, "#token=")
	if !ok {
		b.t.Fatalf("the link is %s", link)
	}
	response := b.send(http.MethodPost, Session, `{"token":"`+token+`"}`, "Origin", "http://"+here, "Sec-Fetch-Site", "same-origin")
	if response.StatusCode != http.StatusOK {
		return response.StatusCode
	}
	var answer struct {
		Key  string
		Demo bool
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		b.t.Fatal(err)
	}
	b.cookie, b.key = response.Cookies()[0], answer.Key
	return response.StatusCode
}

// clock is a time that a test sets.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// Requests of a session have the credentials of the server, and of the browser only the allowed headers.
func TestSessionForwardsOnlyAllowedHeaders(t *testing.T) {
	s, b := serve(t, newClock().now)
	const path = "/coppice/v1/explain?object=pods%2Fshop%2Fweb&uid=a"
	if r := b.send(http.MethodGet, path, ""); r.StatusCode != http.StatusUnauthorized || r.Header.Get("WWW-Authenticate") != "Link" {
		t.Fatalf("without a session: %s", r.Status)
	}
	if code := b.open(s.Link(here)); code != http.StatusOK {
		t.Fatalf("a new link: %d", code)
	}
	if !b.cookie.HttpOnly || b.cookie.SameSite != http.SameSiteStrictMode || b.cookie.Path != "/coppice/" || b.cookie.Domain != "" {
		t.Errorf("the cookie is %s", b.cookie)
	}
	response := b.send(http.MethodGet, path, "", "Authorization", "Bearer theirs", "Impersonate-User", "admin", "X-Remote-User", "admin", "Accept", "application/json")
	var got struct {
		URL     string
		Headers http.Header
	}
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %v", response.Status, err)
	}
	if want := "/prefix" + path; got.URL != want {
		t.Errorf("asked for %s, want %s", got.URL, want)
	}
	for name := range got.Headers {
		switch name {
		case "Accept", "Accept-Encoding", "Authorization":
		default:
			t.Errorf("header %s is sent on", name)
		}
	}
	if authorization := got.Headers.Get("Authorization"); authorization != "Bearer ours" {
		t.Errorf("asks as %s", authorization)
	}
	if len(response.Cookies()) > 0 {
		t.Errorf("cookies of the server come through: %v", response.Cookies())
	}
}

// A target without a prefix gets requests at its own paths, over both versions of HTTP.
func TestRequestsToAServerWithoutPrefixKeepTheirPaths(t *testing.T) {
	s, b := serveBelow(t, newClock().now, "")
	b.open(s.Link(here))
	response := b.send(http.MethodGet, "/coppice/v1/status", "")
	var got struct{ URL string }
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || got.URL != "/coppice/v1/status" {
		t.Errorf("%s %v: asked for %s", response.Status, err, got.URL)
	}
	request := httptest.NewRequest(http.MethodGet, "http://"+here+"/coppice/v1/status", http.NoBody)
	out := &httputil.ProxyRequest{In: request, Out: request.Clone(t.Context())}
	s.rewrite(out)
	if out.Out.URL.Path != "/coppice/v1/status" { // which HTTP/2 takes as it is
		t.Errorf("the path is %q", out.Out.URL.Path)
	}
}

// The other paths of the server need a session, too.
func TestDemoNeedsASession(t *testing.T) {
	s := NewLinkServer(LinkConfig{Target: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Now: newClock().now, DemoPath: "/coppice/demo/", Demo: http.NotFoundHandler()})
	b := &browser{t: t, handler: s.Handler(here)}
	if r := b.send(http.MethodPost, "/coppice/demo/answer", "{}"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %s", r.Status)
	}
	b.open(s.Link(here))
	if r := b.send(http.MethodPost, "/coppice/demo/answer", "{}"); r.StatusCode != http.StatusNotFound {
		t.Errorf("with one: %s", r.Status)
	}
}

// Half a session is not enough.
func TestHalfASessionIsRefused(t *testing.T) {
	s, b := serve(t, newClock().now)
	b.open(s.Link(here))
	for name, half := range map[string]browser{
		"the cookie alone":  {t, b.handler, b.cookie, ""},
		"the key alone":     {t, b.handler, nil, b.key},
		"another's key":     {t, b.handler, b.cookie, "AAAA"},
		"the cookie as key": {t, b.handler, b.cookie, b.cookie.Value},
	} {
		if r := half.send(http.MethodGet, "/coppice/v1/status", ""); r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s", name, r.Status)
		}
	}
}

// A link works once. A second use ends the session of the first: one of the two users should not have the link.
func TestLinkWorksOnce(t *testing.T) {
	s, b := serve(t, newClock().now)
	link := s.Link(here)
	b.open(link)
	other := &browser{t: t, handler: b.handler}
	other.open(s.Link(here))
	if code := (&browser{t: t, handler: b.handler}).open(link); code != http.StatusGone {
		t.Errorf("the second time: %d", code)
	}
	if r := b.send(http.MethodGet, "/coppice/v1/status", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the session of a link that was seen by two: %s", r.Status)
	}
	if r := other.send(http.MethodGet, "/coppice/v1/status", ""); r.StatusCode != http.StatusOK {
		t.Errorf("the session of another link: %s", r.Status)
	}
}

// Links and sessions expire.
func TestLinksAndSessionsExpire(t *testing.T) {
	now := newClock()
	s, b := serve(t, now.now)
	link := s.Link(here)
	now.Time = now.Add(tokenLife + time.Second)
	if code := b.open(link); code != http.StatusGone {
		t.Errorf("an old link: %d", code)
	}
	b.open(s.Link(here))
	now.Time = now.Add(sessionLife - time.Second)
	if r := b.send(http.MethodGet, "/coppice/v1/status", ""); r.StatusCode != http.StatusOK {
		t.Errorf("just before its end: %s", r.Status)
	}
	now.Time = now.Add(time.Second)
	if r := b.send(http.MethodGet, "/coppice/v1/status", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("at its end: %s", r.Status)
	}
}

// Requests from a page of another origin, and requests for another host, are refused.
func TestRequestsFromOtherOriginsAreRefused(t *testing.T) {
	s, b := serve(t, newClock().now)
	b.open(s.Link(here))
	for _, c := range []struct {
		name, method, path string
		headers            []string
		code               int
	}{
		{"the page", "GET", "/coppice/", nil, http.StatusOK},
		{"the page, typed", "GET", "/coppice/", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, http.StatusOK},
		{"the page, by a link elsewhere", "GET", "/coppice/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, http.StatusOK},
		{"an answer", "GET", "/coppice/v1/status", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, http.StatusOK},
		{"another name for this address", "GET", "/coppice/", []string{"Host", "evil.example:8451"}, http.StatusForbidden},
		{"another port", "GET", "/coppice/v1/status", []string{"Host", "127.0.0.1:8452"}, http.StatusForbidden},
		{"of another site", "GET", "/coppice/v1/status", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		{"of another port, which is the same site", "GET", "/coppice/v1/status", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}, http.StatusForbidden},
		{"of another origin", "POST", "/coppice/v1/resume", []string{"Origin", "http://127.0.0.1:8452"}, http.StatusForbidden},
		{"of no origin", "POST", Session, []string{"Origin", "null"}, http.StatusForbidden},
		{"a change that is offered", "POST", "/coppice/v1/resume?kind=Pod", []string{"Origin", "http://" + here}, http.StatusOK},
		{"a change that is not", "POST", "/coppice/v1/status", nil, http.StatusNotFound},
		{"a path that is not the API's", "GET", "/api/v1/secrets", nil, http.StatusNotFound},
		{"out of the API", "GET", "/coppice/v1/../../api/v1/secrets", nil, http.StatusNotFound},
		{"out of the API, encoded", "GET", "/coppice/v1/%2e%2e/%2e%2e/api/v1/secrets", nil, http.StatusNotFound},
		{"out of the API, with encoded slashes", "GET", "/coppice/v1/..%2f..%2fapi", nil, http.StatusNotFound},
	} {
		if r := b.send(c.method, c.path, "", c.headers...); r.StatusCode != c.code {
			t.Errorf("%s: %s, want %d", c.name, r.Status, c.code)
		}
	}
}

// Events are forwarded at once.
func TestEventsAreForwardedAtOnce(t *testing.T) {
	s, b := serve(t, newClock().now)
	b.open(s.Link(here))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = here
		b.handler.ServeHTTP(w, r)
	}))
	defer front.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+"/coppice/v1/watch", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.AddCookie(b.cookie)
	request.Header.Set(KeyHeader, b.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "event: one\n" {
		t.Errorf("%q %v", line, err)
	}
}
