package kubernetesservice

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var serviceIP = netip.MustParseAddr("10.96.0.1")

func addresses(texts ...string) (all []netip.AddrPort) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

func endpointsText(e *corev1.Endpoints) string {
	if e == nil {
		return "none"
	}
	var all []string
	for _, s := range e.Subsets {
		line := fmt.Sprint(s.Ports[0].Port)
		for _, a := range s.Addresses {
			line += " " + a.IP
		}
		all = append(all, line)
	}
	return strings.Join(all, "; ")
}

func slicesText(all []*discoveryv1.EndpointSlice) string {
	var lines []string
	for _, s := range all {
		line := fmt.Sprintf("%s %s %d", s.Name, s.AddressType, *s.Ports[0].Port)
		for _, e := range s.Endpoints {
			line += " " + strings.Join(e.Addresses, "+")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestEndpointsHaveAllServers(t *testing.T) {
	for name, test := range map[string]struct {
		servers           []netip.AddrPort
		target            int32
		endpoints, slices string
	}{
		"no address": {target: 6443, endpoints: "none"},
		"one": {
			servers: addresses("192.0.2.1:7443"), target: 7443,
			endpoints: "7443 192.0.2.1", slices: "kubernetes IPv4 7443 192.0.2.1",
		},
		"IPv6": {
			servers: addresses("[fd00::1]:6443"), target: 6443,
			endpoints: "6443 fd00::1", slices: "kubernetes IPv6 6443 fd00::1",
		},
		"three, in any order": {
			servers: addresses("192.0.2.3:6443", "192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.1:6443"), target: 6443,
			endpoints: "6443 192.0.2.1 192.0.2.2 192.0.2.3", slices: "kubernetes IPv4 6443 192.0.2.1 192.0.2.2 192.0.2.3",
		},
		"several ports and families": {
			servers: addresses("[fd00::1]:6443", "192.0.2.1:7443", "192.0.2.1:6443", "192.0.2.2:7443"), target: 6443,
			endpoints: "6443 192.0.2.1 fd00::1; 7443 192.0.2.1 192.0.2.2",
			slices:    "kubernetes IPv4 6443 192.0.2.1; kubernetes-ipv4-7443 IPv4 7443 192.0.2.1 192.0.2.2; kubernetes-ipv6-6443 IPv6 6443 fd00::1",
		},
	} {
		given := slices.Clone(test.servers)
		p := decide(serviceIP, 6443, test.servers)
		if got := p.service.Spec.Ports[0].TargetPort; got != intstr.FromInt32(test.target) {
			t.Errorf("%s: target port %v, want %d", name, got, test.target)
		}
		if got := endpointsText(p.endpoints); got != test.endpoints {
			t.Errorf("%s: endpoints %q, want %q", name, got, test.endpoints)
		}
		if got := slicesText(p.slices); got != test.slices {
			t.Errorf("%s: slices %q, want %q", name, got, test.slices)
		}
		if !slices.Equal(given, test.servers) {
			t.Errorf("%s: the servers were reordered", name)
		}
	}
}

// Names, labels and ports are the same as in kube-apiserver.
func TestDecideAsUpstream(t *testing.T) {
	p := decide(serviceIP, 6443, addresses("192.0.2.1:6443"))
	s := p.service
	if s.Namespace != "default" || s.Name != "kubernetes" || s.Labels["component"] != "apiserver" || s.Labels["provider"] != "kubernetes" {
		t.Errorf("%+v", s.ObjectMeta)
	}
	if port := s.Spec.Ports[0]; s.Spec.ClusterIP != "10.96.0.1" || s.Spec.Selector != nil || port.Name != "https" || port.Port != 443 || s.Spec.SessionAffinity != corev1.ServiceAffinityNone {
		t.Errorf("%+v", s.Spec)
	}
	if e := p.endpoints; e.Namespace != "default" || e.Name != "kubernetes" || e.Labels["endpointslice.kubernetes.io/skip-mirror"] != "true" || e.Subsets[0].Ports[0].Name != "https" {
		t.Errorf("%+v", e)
	}
	if slice := p.slices[0]; slice.Namespace != "default" || len(slice.Labels) != 1 || slice.Labels["kubernetes.io/service-name"] != "kubernetes" ||
		len(slice.OwnerReferences) != 0 || *slice.Ports[0].Name != "https" || !*slice.Endpoints[0].Conditions.Ready {
		t.Errorf("%+v", slice)
	}
}

func TestOnlyChangedFieldsOfTheServiceAreCorrected(t *testing.T) {
	p := decide(serviceIP, 6443, addresses("192.0.2.1:6443"))
	stored := p.service.DeepCopy()
	stored.ResourceVersion, stored.Labels["mine"], stored.Spec.Type, stored.Spec.Ports[0].NodePort = "7", "x", corev1.ServiceTypeNodePort, 30001
	if next := correctedService(stored, p.service); next != nil {
		t.Errorf("what people add is no reason to write %+v", next)
	}
	for name, change := range map[string]func(*corev1.Service){
		"label":       func(s *corev1.Service) { delete(s.Labels, "provider") },
		"port":        func(s *corev1.Service) { s.Spec.Ports[0].Port = 80 },
		"target port": func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) },
		"more ports":  func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 80}) },
		"selector":    func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} },
	} {
		wrong := stored.DeepCopy()
		change(wrong)
		next := correctedService(wrong, p.service)
		switch {
		case next == nil:
			t.Errorf("%s: not corrected", name)
		case correctedService(next, p.service) != nil || next.ResourceVersion != "7" || next.Labels["mine"] != "x":
			t.Errorf("%s: corrected to %+v", name, next)
		}
	}
	endpoints := p.endpoints.DeepCopy()
	if correctedEndpoints(endpoints, p.endpoints) != nil {
		t.Error("right endpoints are corrected")
	}
	endpoints.Subsets[0].Addresses[0].IP = "192.0.2.9"
	if next := correctedEndpoints(endpoints, p.endpoints); next == nil || endpointsText(next) != "6443 192.0.2.1" {
		t.Errorf("%+v", next)
	}
	slice := p.slices[0].DeepCopy()
	if correctedSlice(slice, p.slices[0]) != nil {
		t.Error("a right slice is corrected")
	}
	slice.Labels = nil
	if next := correctedSlice(slice, p.slices[0]); next == nil || next.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
		t.Errorf("%+v", next)
	}
}

// Slices of others stay, including slices that users have created for the Service.
func TestSlicesOfOthersStay(t *testing.T) {
	desired := decide(serviceIP, 6443, addresses("192.0.2.1:6443", "192.0.2.1:7443")).slices
	labelled := func(name, by string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelManagedBy: by}}}
	}
	for slice, want := range map[*discoveryv1.EndpointSlice]bool{
		desired[0]: false, desired[1]: false, labelled("kubernetes-ipv4-8443", managedBy): true, labelled("kubernetes-ipv4-8443", "somebody"): false,
	} {
		if surplus(slice, desired) != want {
			t.Errorf("%s by %q: %t", slice.Name, slice.Labels[discoveryv1.LabelManagedBy], !want)
		}
	}
}
