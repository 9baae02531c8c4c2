package aggregation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.7",
		Ports: []corev1.ServicePort{{Name: "metrics", Port: 9090}, {Name: "https", Port: 443}},
	}}
	if change != nil {
		change(s)
	}
	return s
}

// slice returns an EndpointSlice with a port of that name, and endpoints: "10.0.0.1", or
// "-10.0.0.1" if it is not ready.
func slice(port string, number int32, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}}}
	for _, e := range endpoints {
		host, waits := strings.CutPrefix(e, "-")
		endpoint := discoveryv1.Endpoint{Addresses: []string{host}}
		if waits {
			endpoint.Conditions.Ready = new(false)
		}
		s.Endpoints = append(s.Endpoints, endpoint)
	}
	return s
}

func TestRoute(t *testing.T) {
	type list = []*discoveryv1.EndpointSlice
	typed := func(kind corev1.ServiceType) *corev1.Service {
		return service(func(s *corev1.Service) { s.Spec.Type = kind })
	}
	unnamed := service(func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 443}} })
	external := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "api.example.com"}}
	for name, test := range map[string]struct {
		service   *corev1.Service
		endpoints list
		want      string // addresses, or the reason
	}{
		"no service":                  {nil, nil, "ServiceNotFound"},
		"another port":                {service(func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }), list{slice("https", 8443, "10.0.0.1")}, "ServicePortError"},
		"no slices":                   {service(nil), nil, "EndpointsNotFound"},
		"an empty slice":              {service(nil), list{slice("https", 8443)}, "MissingEndpoints"},
		"nothing is ready":            {service(nil), list{slice("https", 8443, "-10.0.0.1")}, "MissingEndpoints"},
		"another port's endpoints":    {service(nil), list{slice("metrics", 9090, "10.0.0.1")}, "MissingEndpoints"},
		"a port without number":       {service(nil), list{{Ports: []discoveryv1.EndpointPort{{Name: new("https")}}, Endpoints: slice("", 0, "10.0.0.1").Endpoints}}, "MissingEndpoints"},
		"those that are ready":        {service(nil), list{slice("https", 8443, "10.0.0.2", "-10.0.0.3"), slice("https", 8444, "10.0.0.1", "10.0.0.1")}, "[{10.0.0.1 8444} {10.0.0.2 8443}]"},
		"the other port's do not mix": {service(nil), list{slice("https", 8443, "10.0.0.1"), slice("metrics", 9090, "10.0.0.1")}, "[{10.0.0.1 8443}]"},
		"IPv6":                        {service(nil), list{slice("https", 8443, "fd00::1")}, "[{fd00::1 8443}]"},
		"a headless service":          {service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), list{slice("https", 8443, "10.0.0.1")}, "[{10.0.0.1 8443}]"},
		"a port without a name":       {unnamed, list{slice("", 8443, "10.0.0.1")}, "[{10.0.0.1 8443}]"},
		"NodePort":                    {typed(corev1.ServiceTypeNodePort), list{slice("https", 8443, "10.0.0.1")}, "[{10.0.0.1 8443}]"},
		"ExternalName":                {external, nil, "[{api.example.com 443}]"},
	} {
		got, err := route(apiregistrationv1.ServiceReference{Namespace: "fruit", Name: "api", Port: ptr.To[int32](443)}, test.service, test.endpoints)
		outcome := fmt.Sprint(got)
		if err != nil {
			outcome = availability(err).Reason
			if text := availability(err).Message; !strings.Contains(text, "service/api") || !strings.Contains(text, `"fruit"`) {
				t.Errorf("%s: the message does not name the service: %s", name, text)
			}
		}
		if outcome != test.want {
			t.Errorf("%s: %s, want %s", name, outcome, test.want)
		}
	}
}

func TestConditions(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	down := errors.New("connection refused")
	s := &apiregistrationv1.APIService{}
	for i, step := range []struct {
		err    error
		at     metav1.Time
		writes bool
		want   string
	}{
		{down, then, true, "False FailedDiscoveryCheck connection refused 1"},
		{down, now, false, ""},
		{&unreachable{"ServiceNotFound", "no service"}, now, true, "False ServiceNotFound no service 1"}, // still not available
		{nil, now, true, "True Passed all checks passed 2"},
		{nil, then, false, ""},
	} {
		changed, ok := withCondition(s, availability(step.err), step.at)
		if ok != step.writes {
			t.Fatalf("step %d: writes: %t", i, ok)
		}
		if !ok {
			continue
		}
		s = changed
		c := s.Status.Conditions[0]
		if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message, " ", c.LastTransitionTime.Unix()); got != step.want || len(s.Status.Conditions) != 1 {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}
