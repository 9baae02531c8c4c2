package page

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPageOfAnotherPortOpensNoStream checks that the API server refuses the WebSocket that the browser opens for a page of
// another port of this machine. The test sends the browser's headers with the client certificate: the browser has none.
func TestPageOfAnotherPortOpensNoStream(t *testing.T) {
	p := newPlane(t)
	headers := webSocketHeaders(t)
	view := func(field string) string {
		return strings.TrimSpace(p.kubectl("", "config", "view", "--raw", "--minify", "-o", "jsonpath={"+field+"}"))
	}
	decoded := func(field string) []byte {
		data, err := base64.StdEncoding.DecodeString(view(field))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	certificate, err := tls.X509KeyPair(decoded(".users[0].user.client-certificate-data"), decoded(".users[0].user.client-key-data"))
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(decoded(".clusters[0].cluster.certificate-authority-data"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{certificate}}}}
	open := func() (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, view(".clusters[0].cluster.server")+"/api/v1/secrets?watch=true&timeoutSeconds=1", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = headers
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode == http.StatusSwitchingProtocols {
			return response.StatusCode, ""
		}
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	if code, body := open(); code != http.StatusForbidden || !strings.Contains(body, "a page of another origin") {
		t.Errorf("for the browser: %d %s", code, body)
	}
	headers.Set("User-Agent", "")
	if code, body := open(); code != http.StatusSwitchingProtocols {
		t.Errorf("for a program: %d %s", code, body)
	}
}

// webSocketHeaders returns the headers of the WebSocket that the browser opens for a page of another port.
func webSocketHeaders(t *testing.T) http.Header {
	t.Helper()
	opened := make(chan http.Header, 1)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		opened <- r.Header
		<-r.Context().Done() // an answer that is no WebSocket would be an error in the console
	}))
	t.Cleanup(api.Close)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<link rel=icon href='data:,'><script>new WebSocket(%q)</script>", "ws"+strings.TrimPrefix(api.URL, "http"))
	}))
	t.Cleanup(other.Close)
	b := newTab(t, other.URL, 800, 600)
	b.visit(chromedp.Navigate(other.URL))
	select {
	case headers := <-opened:
		return headers
	case <-time.After(patience):
		t.Fatalf("the browser opens no WebSocket within %s", patience)
		return nil
	}
}
