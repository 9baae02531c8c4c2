package apiserver_test

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

// sent is a request of a client that is not client-go.
type sent struct {
	method, path string
	headers      map[string]string
}

// send sends a request over the network, and returns the status and the body of the response. The body of a response that
// switches protocols is not read.
func send(t *testing.T, config *rest.Config, what sent) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), what.method, config.Host+what.path, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range what.headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response.StatusCode, ""
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

const (
	ofAnotherOrigin = "a page of another origin"
	// chromium and firefox are User-Agents of browsers.
	chromium = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
	firefox  = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
)

// TestPagesOfOtherOriginsOpenNoStreams checks that no page of another origin can open a WebSocket with the client certificate
// of a user: a browser lets it read and write there. Programs, and the pages of the server itself, can.
func TestPagesOfOtherOriginsOpenNoStreams(t *testing.T) {
	s, namespace, pods := startStreamed(t)
	admin := s.as(t, (*auth.Authority).Admin)
	s.account(t, namespace, "robot")
	robot := s.bearer(s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token)
	for _, path := range []string{
		pods + "web/exec?command=sh&stdout=true", pods + "web/attach?stdout=true", pods + "web/portforward", pods + "unbound/log",
		pods + "web/proxy/", "/api/v1/nodes/here/proxy/exec/a/b/c", "/api/v1/namespaces/" + namespace + "/services/web/proxy/",
		"/api/v1/namespaces/" + namespace + "/secrets?watch=true&timeoutSeconds=1",
	} {
		for name, test := range map[string]struct {
			config  *rest.Config
			headers map[string]string
			refused bool
		}{
			"another origin":                {admin, map[string]string{"Origin": "https://example.com"}, true},
			"another origin, as it says":    {admin, map[string]string{"Origin": s.url, "Sec-Fetch-Site": "cross-site"}, true},
			"another port":                  {admin, map[string]string{"Origin": "https://localhost:1", "Sec-Fetch-Site": "same-site"}, true},
			"no origin":                     {admin, map[string]string{"Origin": "null"}, true},
			"a name that begins so":         {admin, map[string]string{"Origin": "http://localhost.example.com"}, true},
			"a name that ends so":           {admin, map[string]string{"Origin": "http://example-localhost"}, true},
			"an address as a name":          {admin, map[string]string{"Origin": "http://127.0.0.1.example.com"}, true},
			"localhost as a user":           {admin, map[string]string{"Origin": "http://localhost@example.com"}, true},
			"another address":               {admin, map[string]string{"Origin": "http://10.0.0.1:8001"}, true},
			"localhost, as another origin":  {admin, map[string]string{"Origin": "http://localhost", "Sec-Fetch-Site": "cross-site"}, true},
			"a conformance test":            {admin, map[string]string{"Origin": "http://localhost"}, false},
			"a conformance test, as Go":     {admin, map[string]string{"Origin": "http://localhost", "User-Agent": "Go-http-client/1.1"}, false},
			"a conformance test, no agent":  {admin, map[string]string{"Origin": "http://localhost", "User-Agent": ""}, false},
			"a program of this machine":     {admin, map[string]string{"Origin": "http://[::1]:8001"}, false},
			"a page of another port":        {admin, map[string]string{"Origin": "http://localhost:8080", "User-Agent": chromium}, true},
			"kubectl proxy's page":          {admin, map[string]string{"Origin": "http://127.0.0.1:8001", "User-Agent": firefox}, true},
			"kubectl proxy's page, IPv6":    {admin, map[string]string{"Origin": "http://[::1]:8001", "User-Agent": chromium}, true},
			"the page, as it says":          {admin, map[string]string{"Origin": "http://127.0.0.1:8001", "Sec-Fetch-Site": "same-origin"}, false},
			"a page with a token":           {robot, map[string]string{"Origin": "http://localhost:8080", "User-Agent": chromium}, false},
			"a program":                     {admin, nil, false},
			"the server's page":             {admin, map[string]string{"Origin": s.url}, false},
			"the server's page, as it says": {admin, map[string]string{"Origin": s.url, "Sec-Fetch-Site": "same-origin"}, false},
			"a token":                       {robot, map[string]string{"Origin": "https://example.com"}, false},
		} {
			headers := map[string]string{
				"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
			}
			maps.Copy(headers, test.headers)
			status, body := send(t, test.config, sent{http.MethodGet, path, headers})
			if refused := status == http.StatusForbidden && strings.Contains(body, ofAnotherOrigin); refused != test.refused {
				t.Errorf("%s, of %s: %d %s", path, name, status, body)
			}
		}
	}
}

// TestPagesOfOtherOriginsSendNoForms checks that no page of another origin can write through a proxy with a form, whose type of
// content a browser does not ask about.
func TestPagesOfOtherOriginsSendNoForms(t *testing.T) {
	s := startProxied(t)
	admin := s.as(t, (*auth.Authority).Admin)
	const path = "/api/v1/nodes/here/proxy/run/a/b"
	for _, form := range []string{"", "text/plain", "text/plain;charset=UTF-8", "Application/X-WWW-Form-Urlencoded", "multipart/form-data; boundary=a", "text/plain, application/json"} {
		page := map[string]string{"Content-Type": form, "Origin": "https://example.com", "Sec-Fetch-Site": "cross-site"}
		if status, body := send(t, admin, sent{http.MethodPost, path, page}); status != http.StatusForbidden || !strings.Contains(body, ofAnotherOrigin) {
			t.Errorf("%q from a page: %d %s", form, status, body)
		}
		if status, body := send(t, admin, sent{http.MethodPost, path, map[string]string{"Content-Type": form}}); status != http.StatusOK {
			t.Errorf("%q from a program: %d %s", form, status, body)
		}
		local := map[string]string{"Content-Type": form, "Origin": "http://127.0.0.1:8001"}
		if status, body := send(t, admin, sent{http.MethodPost, path, local}); status != http.StatusOK {
			t.Errorf("%q from a program of this machine: %d %s", form, status, body)
		}
		local["User-Agent"] = chromium
		if status, body := send(t, admin, sent{http.MethodPost, path, local}); status != http.StatusForbidden || !strings.Contains(body, ofAnotherOrigin) {
			t.Errorf("%q from a page of this machine: %d %s", form, status, body)
		}
	}
	// A browser asks the server before it sends this; a proxy in front of the server may pass the origin on.
	if status, body := send(t, admin, sent{http.MethodPost, path, map[string]string{"Content-Type": "application/json", "Origin": "https://example.com"}}); status != http.StatusOK {
		t.Errorf("JSON: %d %s", status, body)
	}
}
