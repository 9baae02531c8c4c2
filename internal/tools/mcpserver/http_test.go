package mcpserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// token is the token of the clients in these tests.
const token = "abcdefghijklmnopqrstuvwxyz"

// bearer adds the token to requests.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP returns the client of a new session over HTTP.
func overHTTP(t *testing.T, url string) *mcp.ClientSession {
	t.Helper()
	return clientOf(t, &mcp.StreamableClientTransport{Endpoint: url + Path, HTTPClient: &http.Client{Transport: bearer{}}, DisableStandaloneSSE: true})
}

// serving returns the URL of a server on loopback.
func serving(t *testing.T, s *Server) string {
	t.Helper()
	server := httptest.NewServer(s.Handler(token))
	t.Cleanup(server.Close)
	return server.URL
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	callDelete = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{"objects":["pod/p"],"digest":"aaaa"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
)

// post sends a request with the headers of a client, of which some are replaced, or removed if they are empty.
func post(t *testing.T, url, body string, headers map[string]string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range headers {
		r.Header.Del(name)
		if name == "Host" {
			r.Host = value
		} else if value != "" {
			r.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestSessionsOverHTTP: a session over HTTP previews and deletes; another one cannot use its preview.
func TestSessionsOverHTTP(t *testing.T) {
	f, s := newFake(Deleting)
	url := serving(t, s)
	first, second := overHTTP(t, url), overHTTP(t, url)
	shown := call(t, first, "preview", pod(nil))
	arguments := pod(map[string]any{"digest": shown.data["digest"]})
	if got := call(t, second, "delete", arguments); !got.isError || len(f.deletions()) > 0 {
		t.Errorf("another session deletes: %+v", got)
	}
	if got := call(t, first, "delete", arguments); got.isError || len(f.deletions()) != 1 {
		t.Errorf("the session does not delete: %+v", got)
	}
	if got := call(t, first, "delete", arguments); !got.isError || len(f.deletions()) != 1 {
		t.Errorf("the digest works twice: %+v", got)
	}
}

// TestRequestsThatOpenNoSession: pages in browsers and clients without the token get nothing.
func TestRequestsThatOpenNoSession(t *testing.T) {
	f, s := newFake(Deleting)
	url := serving(t, s)
	host := strings.TrimPrefix(url, "http://")
	for _, test := range []struct {
		name    string
		body    string
		headers map[string]string
		status  int
	}{
		{"a client", initialize, nil, http.StatusOK},
		{"a page of this server", initialize, map[string]string{"Origin": url}, http.StatusOK},
		{"no token", initialize, map[string]string{"Authorization": ""}, http.StatusUnauthorized},
		{"another token", initialize, map[string]string{"Authorization": "Bearer " + token + "x"}, http.StatusUnauthorized},
		{"an empty token", initialize, map[string]string{"Authorization": "Bearer "}, http.StatusUnauthorized},
		{"another scheme", initialize, map[string]string{"Authorization": "Basic " + token}, http.StatusUnauthorized},
		{"a page elsewhere", initialize, map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		{"a page on another port", initialize, map[string]string{"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		{"a page without an origin", initialize, map[string]string{"Origin": "null"}, http.StatusForbidden},
		{"a name that resolves to loopback", initialize, map[string]string{"Host": "evil.example"}, http.StatusForbidden},
		{"the same, with its origin", initialize, map[string]string{"Host": "evil.example:" + host, "Origin": "http://evil.example"}, http.StatusForbidden},
		{"a form", initialize, map[string]string{"Content-Type": "text/plain"}, http.StatusUnsupportedMediaType},
		{"a large body", initialize + strings.Repeat(" ", mostBody), nil, http.StatusRequestEntityTooLarge},
		{"a made-up session", callDelete, map[string]string{"Mcp-Session-Id": "x"}, http.StatusNotFound},
	} {
		if status, text := post(t, url+Path, test.body, test.headers); status != test.status || strings.Contains(text, token) {
			t.Errorf("%s: status %d, want %d: %s", test.name, status, test.status, text)
		}
	}
	if status, _ := post(t, url+"/", initialize, nil); status != http.StatusNotFound {
		t.Errorf("another path: status %d", status)
	}
	if _, text := post(t, url+Path, callDelete, map[string]string{"Mcp-Protocol-Version": "2026-07-28"}); !strings.Contains(text, "error") || len(f.deletions()) > 0 {
		t.Errorf("a request without a session: %s", text)
	}
}

// TestSessionsAreBounded: clients cannot open any number of sessions, and a session that ends makes room.
func TestSessionsAreBounded(t *testing.T) {
	_, s := newFake(ReadOnly)
	url := serving(t, s)
	for range mostSessions + 1 { // requests that open no session take no place
		post(t, url+Path, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil)
	}
	var last *mcp.ClientSession
	for range mostSessions {
		last = overHTTP(t, url)
	}
	if status, text := post(t, url+Path, initialize, nil); status != http.StatusTooManyRequests || !strings.Contains(text, "too many sessions") {
		t.Errorf("status %d: %s", status, text)
	}
	if got := call(t, last, "preview", pod(nil)); got.isError {
		t.Errorf("a session is not served: %+v", got)
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	if status, text := post(t, url+Path, initialize, nil); status != http.StatusOK {
		t.Errorf("status %d: %s", status, text)
	}
}
