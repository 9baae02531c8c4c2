package inprocess

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// Requests that come before the handler is set fail with an error that says why.
func TestTransportBeforeItsHandler(t *testing.T) {
	var handler http.Handler
	transport := NewLoopback(func() http.Handler { return handler })
	config := transport.Config(&rest.Config{Host: "https://localhost", BearerToken: "secret"})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/path", nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(request)
	}
	if response, err := get(); err == nil {
		response.Body.Close()
		t.Error("a request without a handler succeeds")
	} else if !strings.Contains(err.Error(), "not assembled yet") {
		t.Error(err)
	}
	var seen *http.Request
	handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r })
	response, err := get()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if seen.URL.Path != "/path" || seen.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf("%s %v", seen.URL, seen.Header)
	}
}
