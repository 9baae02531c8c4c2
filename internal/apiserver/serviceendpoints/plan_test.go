package serviceendpoints

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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

func TestServiceIsResolvedToItsEndpoints(t *testing.T) {
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
		"those that are ready":        {service(nil), list{slice("https", 8443, "10.0.0.2", "-10.0.0.3"), slice("https", 8444, "10.0.0.1", "10.0.0.1")}, "[{10.0.0.1 8444 } {10.0.0.2 8443 }]"},
		"the other port's do not mix": {service(nil), list{slice("https", 8443, "10.0.0.1"), slice("metrics", 9090, "10.0.0.1")}, "[{10.0.0.1 8443 }]"},
		"IPv6":                        {service(nil), list{slice("https", 8443, "fd00::1")}, "[{fd00::1 8443 }]"},
		"a headless service":          {service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), list{slice("https", 8443, "10.0.0.1")}, "[{10.0.0.1 8443 }]"},
		"a port without a name":       {unnamed, list{slice("", 8443, "10.0.0.1")}, "[{10.0.0.1 8443 }]"},
		"NodePort":                    {typed(corev1.ServiceTypeNodePort), list{slice("https", 8443, "10.0.0.1")}, "[{10.0.0.1 8443 }]"},
		"ExternalName":                {external, nil, "[{api.example.com 443 }]"},
	} {
		got, err := resolve(Reference{"fruit", "api", 443}, test.service, test.endpoints)
		outcome := fmt.Sprint(got)
		if err != nil {
			problem, ok := errors.AsType[*Unreachable](err)
			if !ok || !strings.Contains(problem.Message, "service/api") || !strings.Contains(problem.Message, `"fruit"`) || problem.Remedy == "" {
				t.Errorf("%s: the error does not name the service and the remedy: %#v", name, err)
			} else {
				outcome = problem.Reason
			}
		}
		if outcome != test.want {
			t.Errorf("%s: %s, want %s", name, outcome, test.want)
		}
	}
}

// Other machines may have the addresses of pods on simulated nodes.
func TestEndpointsOnSimulatedNodesAreLeftOut(t *testing.T) {
	simulated := func(node string) bool { return strings.HasPrefix(node, "simulated") }
	ref := Reference{"fruit", "api", 443}
	real, unknown, gone := endpoint{"10.0.0.1", 1, "real"}, endpoint{"10.0.0.2", 1, ""}, endpoint{"10.0.0.3", 1, "simulated-0"}
	left, err := withProcesses(ref, []endpoint{real, unknown, gone}, simulated)
	if err != nil || fmt.Sprint(left) != fmt.Sprint([]endpoint{real, unknown}) {
		t.Errorf("%v %v", left, err)
	}
	_, err = withProcesses(ref, []endpoint{gone}, simulated)
	if problem, ok := errors.AsType[*Unreachable](err); !ok || problem.Reason != "MissingEndpoints" || !strings.Contains(problem.Remedy, "real containers") {
		t.Errorf("%v", err)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.1:443": true, "127.0.0.1:443": true, "[::1]:443": true, "[fd00::1]:443": true, "203.0.113.7:443": true,
		"169.254.169.254:80": false, "[fe80::1]:443": false, "[::ffff:169.254.169.254]:80": false, "0.0.0.0:443": false, "[::]:443": false, "224.0.0.1:443": false, "": false,
	} {
		if err := allowed(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}
