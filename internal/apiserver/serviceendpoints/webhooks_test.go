package serviceendpoints

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

// cluster has the service hook/default, whose endpoints are servers of the test.
type cluster struct {
	authority *auth.Authority
	answer    http.Handler
	lookup    Lookup

	mu    sync.Mutex
	ports []int32 // guarded by mu; of endpoints on this machine
}

func newCluster(t *testing.T, answer http.HandlerFunc) *cluster {
	t.Helper()
	authority, err := auth.LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{authority: authority, answer: answer}
	c.lookup = Lookup{
		Service: func(_ context.Context, namespace, name string) (*corev1.Service, error) {
			if namespace != metav1.NamespaceDefault || name != "hook" {
				return nil, nil // as Lookup says
			}
			return &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}, nil
		},
		EndpointSlices: func(context.Context, string, string) ([]*discoveryv1.EndpointSlice, error) { return c.slices(), nil },
		Node:           func(context.Context, string) (*corev1.Node, error) { return nil, nil }, // as Lookup says
	}
	return c
}

func (c *cluster) slices() []*discoveryv1.EndpointSlice {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*discoveryv1.EndpointSlice
	for _, port := range c.ports {
		all = append(all, &discoveryv1.EndpointSlice{
			Ports:     []discoveryv1.EndpointPort{{Name: new("https"), Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}}},
		})
	}
	return all
}

// serve replaces the endpoints of the service.
func (c *cluster) serve(t *testing.T, urls ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = nil
	for _, u := range urls {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.ParseInt(parsed.Port(), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		c.ports = append(c.ports, int32(port))
	}
}

// server is an endpoint, with a certificate for the service.
func (c *cluster) server(t *testing.T) *httptest.Server {
	t.Helper()
	certificate, err := auth.NewServingCertificate(c.authority, net.IPv4(192, 0, 2, 1), clock.RealClock{}, func(err error) { t.Error(err) }, "hook.default.svc")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate.CurrentCertKeyContent())
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(c.answer)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// client returns the client of k8s.io/apiserver for a webhook.
func (c *cluster) client(t *testing.T, config webhook.ClientConfig, own http.RoundTripper) *rest.RESTClient {
	t.Helper()
	manager, err := webhook.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := webhook.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	manager.SetAuthenticationInfoResolver(resolver)
	manager.SetAuthenticationInfoResolverWrapper(Webhooks{
		Endpoints: NewResolver(func() (Lookup, bool) { return c.lookup, true }), Loopback: &rest.Config{Transport: own, BearerToken: "own"},
		Aggregated: func(version schema.GroupVersion) bool {
			return version.Group == "other.example.com" && version.Version == "v1"
		},
	}.Authentication())
	manager.SetServiceResolver(ServiceResolver())
	client, err := manager.HookClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *cluster) hook(t *testing.T) *rest.RESTClient {
	t.Helper()
	return c.client(t, c.service("hook"), nil)
}

func (c *cluster) service(name string) webhook.ClientConfig {
	return webhook.ClientConfig{
		Name: "hook.example.com", CABundle: c.authority.Certificate(),
		Service: &webhook.ClientConfigService{Namespace: metav1.NamespaceDefault, Name: name, Path: "/review"},
	}
}

// review sends a review, and returns the webhook's message.
func review(t *testing.T, client *rest.RESTClient) (string, error) {
	t.Helper()
	answer := &admissionv1.AdmissionReview{}
	err := client.Post().Body(&admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "1"}}).Do(t.Context()).Into(answer)
	if err != nil || answer.Response == nil {
		return "", err
	}
	return answer.Response.Result.Message, nil
}

// says answers a review with a message.
func says(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"1","status":{"message":%q}}}`, message)
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

func TestServiceIsReachedAtItsEndpoints(t *testing.T) {
	c := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		says(w, fmt.Sprintf("%s %s for %s, as %s, %d", r.Method, r.URL.Path, r.Host, r.TLS.ServerName, r.ProtoMajor))
	})
	c.serve(t, c.server(t).URL)
	got, err := review(t, c.hook(t))
	if want := "POST /review for hook.default.svc:443, as hook.default.svc, 1"; got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// The proxy in the environment leads out of the cluster, so requests to a service must not use it.
func TestServiceIsReachedWithoutProxy(t *testing.T) {
	delegate, err := webhook.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	config, err := Webhooks{}.Authentication()(delegate).ClientConfigForService("hook", "default", 443)
	if err != nil || config.Proxy == nil {
		t.Fatalf("%v %v", config, err)
	}
	if proxy, err := config.Proxy(httptest.NewRequest(http.MethodPost, "https://hook.default.svc", http.NoBody)); proxy != nil || err != nil {
		t.Errorf("%v %v", proxy, err)
	}
}

func TestServiceWithoutEndpoints(t *testing.T) {
	c := newCluster(t, nil)
	_, err := review(t, c.hook(t))
	wantError(t, err, `service/hook in "default"`, "wait until a pod of the service is ready", "remove the configuration")
	_, err = review(t, c.client(t, c.service("missing"), nil))
	wantError(t, err, `service/missing in "default" is not present`, "create the service")
}

// An endpoint that refuses connections does not fail a request that another one can serve, and connections
// to removed endpoints are not reused.
func TestNextEndpoint(t *testing.T) {
	c := newCluster(t, func(w http.ResponseWriter, r *http.Request) {
		says(w, r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	})
	first, second := c.server(t), c.server(t)
	client := c.hook(t)
	c.serve(t, first.URL)
	at := func(want *httptest.Server) {
		t.Helper()
		if got, err := review(t, client); "https://"+got != want.URL {
			t.Errorf("%s answers (%v), want %s", got, err, want.URL)
		}
	}
	at(first)
	c.serve(t, second.URL)
	at(second)
	c.serve(t, first.URL)
	at(first)
	first.Close() // with its idle connection
	c.serve(t, first.URL, second.URL)
	for range 20 {
		at(second)
	}
	c.serve(t, first.URL)
	_, err := review(t, client)
	wantError(t, err, "endpoint 127.0.0.1:", `service/hook in "default"`, "connection refused")
}

// A webhook may have had effects although its response is lost.
func TestRequestThatArrivedIsNotRepeated(t *testing.T) {
	var requests atomic.Int32
	c := newCluster(t, func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	})
	c.serve(t, c.server(t).URL, c.server(t).URL)
	if _, err := review(t, c.hook(t)); err == nil || requests.Load() != 1 {
		t.Errorf("%d requests, %v", requests.Load(), err)
	}
}

func TestCertificateOfAServiceIsVerified(t *testing.T) {
	c := newCluster(t, func(w http.ResponseWriter, _ *http.Request) { says(w, "reached") })
	c.serve(t, c.server(t).URL)
	config := c.service("hook")
	config.CABundle = newCluster(t, nil).authority.Certificate()
	_, err := review(t, c.client(t, config, nil))
	wantError(t, err, "certificate signed by unknown authority")

	c.lookup = Lookup{ // under another name
		Service: func(context.Context, string, string) (*corev1.Service, error) {
			return &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}, nil
		},
		EndpointSlices: func(context.Context, string, string) ([]*discoveryv1.EndpointSlice, error) { return c.slices(), nil },
	}
	_, err = review(t, c.client(t, c.service("other"), nil))
	wantError(t, err, "not other.default.svc")
}

// forms calls a webhook through its service and through its URL.
func forms(t *testing.T, answer http.HandlerFunc, check func(*testing.T, *rest.RESTClient)) {
	t.Helper()
	t.Run("service", func(t *testing.T) {
		c := newCluster(t, answer)
		c.serve(t, c.server(t).URL)
		check(t, c.hook(t))
	})
	t.Run("url", func(t *testing.T) {
		s := httptest.NewTLSServer(answer)
		t.Cleanup(s.Close)
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		check(t, newCluster(t, nil).client(t, webhook.ClientConfig{Name: "hook.example.com", URL: s.URL + "/review", CABundle: authority}, nil))
	})
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { elsewhere.Add(1); says(w, "elsewhere") }))
	defer target.Close()
	for _, status := range redirects() {
		forms(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target.URL, status) }, func(t *testing.T, client *rest.RESTClient) {
			_, err := review(t, client)
			wantError(t, err, "redirects to", "does not follow")
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests went where webhooks have sent them", n)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"declared": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(1<<40))
			w.WriteHeader(http.StatusOK)
		},
		"endless": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
		"compressed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			for range 2 * largestAnswer >> 20 {
				if _, err := zip.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
			_ = zip.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			forms(t, answer, func(t *testing.T, client *rest.RESTClient) {
				_, err := review(t, client)
				wantError(t, err, "answer is larger than")
			})
		})
	}
}

// answering is a transport with one answer.
type answering func(*http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

func TestPausesAreBounded(t *testing.T) {
	for given, want := range map[string]string{"": "", "1": "1", "5": "5", "3600": "5", "Wed, 21 Oct 2065 07:28:00 GMT": "Wed, 21 Oct 2065 07:28:00 GMT"} {
		response, err := boundAnswers(answering(func(*http.Request) *http.Response {
			return &http.Response{Header: http.Header{"Retry-After": {given}}, Body: http.NoBody}
		})).RoundTrip(httptest.NewRequest(http.MethodPost, "/", http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Retry-After"); got != want { // clients read numbers only
			t.Errorf("Retry-After %q becomes %q", given, got)
		}
	}
}

// A larger request permits a larger response.
func TestAnswersGrowWithRequests(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	r.ContentLength = 1 << 20
	response, err := boundAnswers(answering(func(*http.Request) *http.Response {
		return &http.Response{Body: io.NopCloser(io.LimitReader(zeros{}, 20<<20))}
	})).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, response.Body); n != 20<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// The server sends requests to itself with all rights; webhooks may use this to reach aggregated API
// servers only.
func TestOwnServiceLeadsToAggregatedServersOnly(t *testing.T) {
	var reached []string
	own := answering(func(r *http.Request) *http.Response {
		reached = append(reached, r.URL.Path+" "+r.Header.Get("Authorization"))
		recorder := httptest.NewRecorder()
		says(recorder, "aggregated")
		return recorder.Result()
	})
	c := newCluster(t, nil)
	for path, want := range map[string]bool{
		"/apis/other.example.com/v1/reviews": true, "/apis/other.example.com/v2/reviews": false, "/apis/other.example.com/v1": false,
		"/api/v1/namespaces": false, "/apis/apps/v1/deployments": false, "/": false, "/apis/other.example.com/v1/../../../api/v1": false,
	} {
		config := c.service(ownService)
		config.Service.Path = path
		for name, client := range map[string]*rest.RESTClient{
			"service": c.client(t, config, own),
			"url":     c.client(t, webhook.ClientConfig{Name: "hook.example.com", URL: "https://kubernetes.default.svc" + path, CABundle: c.authority.Certificate()}, own),
		} {
			reached = nil
			got, err := review(t, client)
			if want && (got != "aggregated" || err != nil || reached[0] != path+" Bearer own") {
				t.Errorf("%s %s: %v %v %v", name, path, got, err, reached)
			}
			if !want && len(reached) > 0 {
				t.Errorf("%s %s: reached %v", name, path, reached)
			}
			if !want {
				wantError(t, err, "aggregated API servers only")
			}
		}
	}
}
