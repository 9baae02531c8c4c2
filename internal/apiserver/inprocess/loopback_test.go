package inprocess

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
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

// ended is the group of the requests of a server that shuts down: it takes no more.
type ended struct{}

func (ended) Add(int) error { return errors.New("the server waits for the others") }
func (ended) Done()         {}

// A request that is in flight when a server shuts down may need the answer to another one, as the admission of a pod does
// that reads the namespace. Refused with Retry-After, it would be repeated until the server gives up waiting.
func TestRequestsAreAnsweredDuringAShutdown(t *testing.T) {
	isNotLong := func(*http.Request, *apirequest.RequestInfo) bool { return false }
	counted := filters.WithWaitGroup(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), isNotLong, ended{})
	transport := NewLoopback(func() http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			counted.ServeHTTP(w, r.WithContext(apirequest.WithRequestInfo(r.Context(), &apirequest.RequestInfo{})))
		})
	})
	config := transport.Config(&rest.Config{Host: "https://localhost"})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/namespaces/shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("status %d", response.StatusCode)
	}
}
