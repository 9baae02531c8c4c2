package kubernetesservice

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	// name is the name of the Service, its Endpoints, and its first EndpointSlice.
	name = "kubernetes"
	// portName and port are the Service's only port.
	portName = "https"
	port     = 443
	// managedBy labels the slices beyond the first one. The first one has no such label, as
	// upstream.
	managedBy = "apiserver.coppice.dev"
)

// plan has the desired objects. A nil object is not changed.
type plan struct {
	service   *corev1.Service
	endpoints *corev1.Endpoints
	slices    []*discoveryv1.EndpointSlice
}

// decide returns the desired objects for the servers that are present; own is the port of this
// server. All servers make the same decision for the same servers, so that they do not overwrite
// each other.
func decide(ip netip.Addr, own uint16, servers []netip.AddrPort) plan {
	servers = slices.Compact(slices.SortedFunc(slices.Values(servers), netip.AddrPort.Compare))
	target := own
	if len(servers) > 0 {
		target = servers[0].Port()
	}
	p := plan{service: desiredService(ip, target)}
	if len(servers) > 0 {
		p.endpoints, p.slices = desiredEndpoints(servers), desiredSlices(servers)
	}
	return p
}

func desiredService(ip netip.Addr, target uint16) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{"component": "apiserver", "provider": name},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip.String(), IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: portName, Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(int32(target)),
			}},
		},
	}
}

// desiredEndpoints has a subset for each port that servers listen on.
func desiredEndpoints(servers []netip.AddrPort) *corev1.Endpoints {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		// This package writes the slices, not the controller that mirrors Endpoints.
		Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"},
	}}
	for _, group := range grouped(servers, netip.AddrPort.Port) {
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: portName, Port: int32(group[0].Port()), Protocol: corev1.ProtocolTCP}}}
		for _, server := range group {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: server.Addr().String()})
		}
		e.Subsets = append(e.Subsets, subset)
	}
	return e
}

// family is the address type and port of all endpoints of a slice.
type family struct {
	addresses discoveryv1.AddressType
	port      uint16
}

func familyOf(server netip.AddrPort) family {
	if server.Addr().Is4() {
		return family{discoveryv1.AddressTypeIPv4, server.Port()}
	}
	return family{discoveryv1.AddressTypeIPv6, server.Port()}
}

// desiredSlices has a slice for each port and address family. Usually there is one, named like the
// Service.
func desiredSlices(servers []netip.AddrPort) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for i, group := range grouped(servers, familyOf) {
		of := familyOf(group[0])
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name},
			},
			AddressType: of.addresses,
			Ports:       []discoveryv1.EndpointPort{{Name: new(portName), Port: new(int32(of.port)), Protocol: ptr.To(corev1.ProtocolTCP)}},
		}
		if i > 0 {
			s.Name = fmt.Sprintf("%s-%s-%d", name, strings.ToLower(string(of.addresses)), of.port)
			s.Labels[discoveryv1.LabelManagedBy] = managedBy
		}
		for _, server := range group {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{server.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		all = append(all, s)
	}
	return all
}

// grouped groups servers by key, in the order of the first server of each group.
func grouped[K comparable](servers []netip.AddrPort, key func(netip.AddrPort) K) [][]netip.AddrPort {
	var groups [][]netip.AddrPort
	index := map[K]int{}
	for _, server := range servers {
		i, ok := index[key(server)]
		if !ok {
			i = len(groups)
			index[key(server)], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], server)
	}
	return groups
}

// correctedService returns the stored Service with its labels, selector and ports corrected; nil if
// they are right. Its address is immutable. Labels and node ports that users have added stay.
func correctedService(stored, desired *corev1.Service) *corev1.Service {
	next := stored.DeepCopy()
	next.Labels = withLabels(stored.Labels, desired.Labels)
	next.Spec.Selector = nil
	if !samePorts(stored.Spec.Ports, desired.Spec.Ports) {
		next.Spec.Ports = desired.Spec.Ports
	}
	return changed(stored, next)
}

func samePorts(a, b []corev1.ServicePort) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.ServicePort) bool {
		return a.Name == b.Name && a.Port == b.Port && cmp.Or(a.Protocol, corev1.ProtocolTCP) == b.Protocol && a.TargetPort == b.TargetPort
	})
}

// correctedEndpoints is like correctedService.
func correctedEndpoints(stored, desired *corev1.Endpoints) *corev1.Endpoints {
	next := stored.DeepCopy()
	next.Labels, next.Subsets = withLabels(stored.Labels, desired.Labels), desired.Subsets
	return changed(stored, next)
}

// correctedSlice is like correctedService. The address type of a slice is immutable.
func correctedSlice(stored, desired *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	next := stored.DeepCopy()
	next.Labels, next.Ports, next.Endpoints = withLabels(stored.Labels, desired.Labels), desired.Ports, desired.Endpoints
	return changed(stored, next)
}

func changed[T any](stored, next *T) *T {
	if equality.Semantic.DeepEqual(stored, next) {
		return nil
	}
	return next
}

func withLabels(stored, desired map[string]string) map[string]string {
	all := maps.Clone(stored)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, desired)
	return all
}

// surplus reports whether a stored slice was written by this package and is no longer desired.
func surplus(stored *discoveryv1.EndpointSlice, desired []*discoveryv1.EndpointSlice) bool {
	return stored.Labels[discoveryv1.LabelManagedBy] == managedBy &&
		!slices.ContainsFunc(desired, func(s *discoveryv1.EndpointSlice) bool { return s.Name == stored.Name })
}
