package serviceendpoints

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// silent is a transport to addresses of which some never answer.
type silent struct {
	silent   map[string]bool
	attempts []string
}

// RoundTrip implements http.RoundTripper.
func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.attempts = append(s.attempts, r.URL.Host)
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GetConn(r.URL.Host)
	if s.silent[r.URL.Host] {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	trace.GotConn(httptrace.GotConnInfo{})
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// A request does not spend all of its time on an endpoint that accepts no connection.
func TestSilentEndpointLeavesTimeForTheNext(t *testing.T) {
	for name, test := range map[string]struct {
		silent   map[string]bool
		answers  bool
		attempts int // maximum
	}{
		"one":  {map[string]bool{"10.0.0.1:1": true}, true, 2},
		"all":  {map[string]bool{"10.0.0.1:1": true, "10.0.0.2:1": true}, false, 2},
		"none": {nil, true, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			next := &silent{silent: test.silent}
			transport := &endpointTransport{next, resolverOf("10.0.0.1", "10.0.0.2"), Reference{Namespace: "ns", Name: "hook", Port: 443}}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://hook.ns.svc:443/", bytes.NewReader([]byte("{}")))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", "application/json")
			response, err := transport.RoundTrip(r)
			if err == nil {
				response.Body.Close()
			}
			if (err == nil) != test.answers || len(next.attempts) > test.attempts {
				t.Errorf("%s: %v after %v", name, err, next.attempts)
			}
			if err != nil && errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v is taken for a client that has gone", name, err)
			}
		})
	}
}

// resolverOf returns a resolver of Services with these endpoints, at port 1.
func resolverOf(hosts ...string) *Resolver {
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: new(int32(1))}}}
	for _, host := range hosts {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{host}})
	}
	lookup := Lookup{
		Service: func(context.Context, string, string) (*corev1.Service, error) {
			return &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}, nil
		},
		EndpointSlices: func(context.Context, string, string) ([]*discoveryv1.EndpointSlice, error) {
			return []*discoveryv1.EndpointSlice{slice}, nil
		},
	}
	return NewResolver(func() (Lookup, bool) { return lookup, true })
}
