package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(name, address string, ports ...corev1.ServicePort) corev1.Service {
	return corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: address, Ports: ports}}
}

func TestServiceVariables(t *testing.T) {
	got := serviceVariables([]corev1.Service{
		service("my-db", "10.0.0.5", corev1.ServicePort{Name: "sql-1", Port: 5432, Protocol: corev1.ProtocolTCP}, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}),
		service("headless", corev1.ClusterIPNone, corev1.ServicePort{Port: 80}),
		service("external", "", corev1.ServicePort{Port: 80}),
		service("six", "fd00::5", corev1.ServicePort{Port: 80}),
	})
	want := []variable{
		{"MY_DB_SERVICE_HOST", "10.0.0.5"},
		{"MY_DB_SERVICE_PORT", "5432"},
		{"MY_DB_SERVICE_PORT_SQL_1", "5432"},
		{"MY_DB_PORT", "tcp://10.0.0.5:5432"},
		{"MY_DB_PORT_5432_TCP", "tcp://10.0.0.5:5432"},
		{"MY_DB_PORT_5432_TCP_PROTO", "tcp"},
		{"MY_DB_PORT_5432_TCP_PORT", "5432"},
		{"MY_DB_PORT_5432_TCP_ADDR", "10.0.0.5"},
		{"MY_DB_PORT_53_UDP", "udp://10.0.0.5:53"},
		{"MY_DB_PORT_53_UDP_PROTO", "udp"},
		{"MY_DB_PORT_53_UDP_PORT", "53"},
		{"MY_DB_PORT_53_UDP_ADDR", "10.0.0.5"},
		{"SIX_SERVICE_HOST", "fd00::5"},
		{"SIX_SERVICE_PORT", "80"},
		{"SIX_PORT", "tcp://[fd00::5]:80"},
		{"SIX_PORT_80_TCP", "tcp://[fd00::5]:80"},
		{"SIX_PORT_80_TCP_PROTO", "tcp"},
		{"SIX_PORT_80_TCP_PORT", "80"},
		{"SIX_PORT_80_TCP_ADDR", "fd00::5"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(variable{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestServicesOf checks that the address of the API server is the node's address of it. Pods with a network of their
// own get the node's address instead of its loopback.
func TestServicesOf(t *testing.T) {
	w, r := inCluster(t)
	w.services = []corev1.Service{service("web", "10.0.0.6", corev1.ServicePort{Port: 80}), service("kubernetes", "10.0.0.1", corev1.ServicePort{Port: 443})}
	for name, test := range map[string]struct {
		namespace string
		change    func(*corev1.PodSpec)
		want      []string
	}{
		"a network of its own": {"default", func(*corev1.PodSpec) {}, []string{"kubernetes 192.0.2.1", "web 10.0.0.6"}},
		"the host's network":   {"default", func(s *corev1.PodSpec) { s.HostNetwork = true }, []string{"kubernetes 127.0.0.1", "web 10.0.0.6"}},
		"no links":             {"default", func(s *corev1.PodSpec) { s.EnableServiceLinks = new(false) }, []string{"kubernetes 192.0.2.1"}},
		"another namespace":    {"shop", func(*corev1.PodSpec) {}, []string{"kubernetes 192.0.2.1", "web 10.0.0.6", "kubernetes 10.0.0.1"}},
	} {
		pod := aPod()
		pod.Namespace = test.namespace
		test.change(&pod.Spec)
		services, err := r.servicesOf(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range services {
			got = append(got, s.Name+" "+s.Spec.ClusterIP)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
