package core

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
)

// TestServiceReservedAddresses checks that the first addresses of a range are allocated last, and the very first one
// never.
func TestServiceReservedAddresses(t *testing.T) {
	r := ServiceRanges{Addresses: netip.MustParsePrefix("10.1.0.0/24")}
	a := serviceAllocation{allocation.NewWithPick(func(uint64) uint64 { return 0 }), r}
	var last string
	for i := range r.size() - 1 {
		address, err := a.address("web")
		if err != nil {
			t.Fatal(err)
		}
		if first := "10.1.0.17"; i == 0 && address != first {
			t.Errorf("first %s, want %s", address, first)
		}
		if address == r.First().String() {
			t.Errorf("%s is that of default/kubernetes", address)
		}
		a.MarkTaken(addressValue(address))
		last = address
	}
	if last != "10.1.0.16" {
		t.Errorf("last %s", last)
	}
	if _, err := a.address("web"); err == nil {
		t.Error("more than there are")
	}
}

// TestServiceDropsUnused checks that values that only the old type used are dropped, except the ones that the client
// changed, too.
func TestServiceDropsUnused(t *testing.T) {
	balanced := corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
		Ports:                 []corev1.ServicePort{{Port: 80, NodePort: 30001}},
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 30002,
		AllocateLoadBalancerNodePorts: new(true), LoadBalancerClass: new("fast"),
	}
	outside := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, Ports: []corev1.ServicePort{{Port: 80}}}
	for name, c := range map[string]struct{ change, want func(*corev1.ServiceSpec) }{
		"nothing": {},
		"an address": {
			change: func(s *corev1.ServiceSpec) { s.ClusterIP = "10.0.0.2" },
			want:   func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "10.0.0.2", []string{"10.0.0.2"} },
		},
		"a family": {
			change: func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
			want:   func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
		},
		"a node port": {
			change: func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30003 },
			want:   func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30003 },
		},
		"a class": {
			change: func(s *corev1.ServiceSpec) { s.LoadBalancerClass = new("slow") },
			want:   func(s *corev1.ServiceSpec) { s.LoadBalancerClass = new("slow") },
		},
	} {
		old := &corev1.Service{Spec: balanced}
		s, want := &corev1.Service{Spec: *balanced.DeepCopy()}, outside.DeepCopy()
		s.Spec.Type = corev1.ServiceTypeExternalName
		if c.change != nil {
			c.change(&s.Spec)
			c.want(want)
		}
		keepAllocated(s, old)
		dropUnused(s, old)
		if !equality.Semantic.DeepEqual(s.Spec, *want) {
			t.Errorf("the type and %s: %+v, want %+v", name, s.Spec, *want)
		}
	}
	old := &corev1.Service{Spec: balanced}
	old.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "1.2.3.4"}}
	s := old.DeepCopy()
	s.Spec.Type = corev1.ServiceTypeClusterIP
	if prepareServiceUpdate(s, old); len(s.Status.LoadBalancer.Ingress) > 0 {
		t.Error("a service that is no load balancer has an address of one")
	}
}
