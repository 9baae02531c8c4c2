package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
)

// ServiceRanges are the ranges of the addresses and node ports of services.
type ServiceRanges struct {
	// Addresses are the cluster IPs, IPv4 or IPv6. The first address is never allocated, nor is the last of an IPv4
	// range. The second one belongs to the service default/kubernetes.
	Addresses netip.Prefix
	// FirstPort to LastPort are the node ports.
	FirstPort, LastPort int32
	// Objects are the ServiceCIDRs and IPAddresses. Nil: only Addresses counts.
	Objects AddressObjects
}

// AddressObjects reads the addresses of services from ServiceCIDRs and IPAddresses.
type AddressObjects interface {
	// Ranges returns all allocatable ranges; own is the range of the server.
	Ranges(own netip.Prefix) []netip.Prefix
	// Reserved reports whether an address belongs to an object other than a service.
	Reserved(address netip.Addr) bool
}

// DefaultServiceRanges returns Kubernetes' usual ranges.
func DefaultServiceRanges() ServiceRanges {
	return ServiceRanges{Addresses: netip.MustParsePrefix("10.96.0.0/12"), FirstPort: 30000, LastPort: 32767}
}

// MinServiceBits is the minimum number of host bits of a range. It gives 6 addresses, including the address of the
// service default/kubernetes.
const MinServiceBits = 3

// kubernetesService is the service of the API server itself.
const kubernetesService = "kubernetes"

// maxAddressBits limits the number of usable addresses of a range to a million.
const maxAddressBits = 20

// First returns the address of the service default/kubernetes.
func (r ServiceRanges) First() netip.Addr { return r.address(0) }

// size returns the number of allocatable addresses. The first of them is First, the second address of the range.
func (r ServiceRanges) size() uint64 {
	bits := min(r.Addresses.Addr().BitLen()-r.Addresses.Bits(), maxAddressBits)
	size := uint64(1)<<bits - 1
	if r.Addresses.Addr().Is4() && size > 0 {
		size--
	}
	return size
}

// address returns the nth allocatable address.
func (r ServiceRanges) address(n uint64) netip.Addr {
	bytes := r.Addresses.Masked().Addr().As16()
	low := bytes[8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)+n+1)
	return netip.AddrFrom16(bytes).Unmap()
}

// reserved returns the number of addresses at the beginning of a range that are allocated last,
// so that clients that request specific addresses find free ones.
func (r ServiceRanges) reserved() uint64 { return min(max(r.size()/16, 16), 256, r.size()) }

// all returns the ranges from which addresses are allocated.
func (r ServiceRanges) all() []netip.Prefix {
	if r.Objects == nil {
		return []netip.Prefix{r.Addresses}
	}
	return r.Objects.Ranges(r.Addresses)
}

// isOthers reports whether only default/kubernetes or an object other than a service may have an address. The service
// default/kubernetes need not exist yet.
func (r ServiceRanges) isOthers(address netip.Addr) bool {
	return address == r.First() || r.Objects != nil && r.Objects.Reserved(address)
}

// isEdge reports whether an address is the network address or the broadcast address.
func isEdge(in netip.Prefix, address netip.Addr) bool {
	return address == in.Masked().Addr() || address.Is4() && !in.Contains(address.Next())
}

func (r ServiceRanges) family() corev1.IPFamily {
	if r.Addresses.Addr().Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// addressValue returns the value of an address, which is the same for all spellings: fd00::a is also fd00:0::A.
func addressValue(ip string) string {
	if address, err := netip.ParseAddr(ip); err == nil { // validation reports an error
		ip = address.String()
	}
	return "clusterIP/" + ip
}

func nodePortValue(port int32) string { return "nodePort/" + strconv.Itoa(int(port)) }

// serviceValues returns the unique values of a service.
func serviceValues(s *corev1.Service) []string {
	var values []string
	if hasAddress(s) {
		values = append(values, addressValue(s.Spec.ClusterIP))
	}
	for _, port := range s.Spec.Ports {
		if port.NodePort != 0 && usesNodePorts(s) {
			values = append(values, nodePortValue(port.NodePort))
		}
	}
	if s.Spec.HealthCheckNodePort != 0 {
		values = append(values, nodePortValue(s.Spec.HealthCheckNodePort))
	}
	return values
}

// hasAddress reports whether a service has a cluster IP.
func hasAddress(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone
}

// usesNodePorts reports whether services of this type have node ports.
func usesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// hasNodePorts reports whether the ports of a service get node ports.
func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort ||
		s.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(s.Spec.AllocateLoadBalancerNodePorts, true)
}

func needsHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// serviceAllocation allocates the address and the node ports of one service.
type serviceAllocation struct {
	*allocation.Allocation
	ranges ServiceRanges
}

// allocate allocates the values that the type of a service requires and the service does not have.
func (a serviceAllocation) allocate(s, old *corev1.Service) (field.ErrorList, error) {
	switch {
	case old != nil:
		keepAllocated(s, old)
		dropUnused(s, old)
	case s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0:
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, nil
	}
	had := map[string]bool{}
	if old != nil {
		for _, value := range serviceValues(old) {
			had[value] = true
		}
	}
	errs, err := a.allocateAddress(s, old, had)
	if err != nil || len(errs) > 0 {
		return errs, err
	}
	return a.allocatePorts(s, old, had)
}

func (a serviceAllocation) allocateAddress(s, old *corev1.Service, had map[string]bool) (field.ErrorList, error) {
	spec := field.NewPath("spec")
	if errs := a.chooseFamilies(s, old, spec); len(errs) > 0 {
		return errs, nil
	}
	switch value := addressValue(s.Spec.ClusterIP); {
	case s.Spec.ClusterIP == "":
		address, err := a.address(s.Name)
		if err != nil {
			return nil, err
		}
		s.Spec.ClusterIP = address
	case hasAddress(s) && !had[value]:
		if errs := a.requestAddress(s, spec.Child("clusterIPs")); len(errs) > 0 {
			return errs, nil
		}
	}
	if len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	return nil, nil
}

// requestAddress records that the client requests an address.
func (a serviceAllocation) requestAddress(s *corev1.Service, at *field.Path) field.ErrorList {
	ip, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return nil // validation reports it
	}
	refuse := func(why string) *field.Error {
		return field.Invalid(at, []string{s.Spec.ClusterIP}, fmt.Sprintf("failed to allocate IP %s: %s", ip, why))
	}
	all := a.ranges.all()
	i := slices.IndexFunc(all, func(r netip.Prefix) bool { return r.Contains(ip) })
	switch {
	case i < 0:
		return field.ErrorList{refuse("the provided network does not match the current range")}
	case isEdge(all[i], ip):
		return field.ErrorList{refuse(fmt.Sprintf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, all[i]))}
	}
	taken := refuse("provided IP is already allocated")
	if isKubernetes := s.Namespace == metav1.NamespaceDefault && s.Name == kubernetesService; a.ranges.isOthers(ip) && !isKubernetes {
		return field.ErrorList{taken}
	}
	a.Request(addressValue(s.Spec.ClusterIP), taken)
	return nil
}

// address returns an address that is free, as far as the allocator knows.
func (a serviceAllocation) address(service string) (string, error) {
	for _, prefix := range a.ranges.all() {
		one := ServiceRanges{Addresses: prefix}
		free := func(i uint64) bool {
			address := one.address(i)
			return !a.Taken(addressValue(address.String())) && !a.ranges.isOthers(address)
		}
		// The part of the range that is not reserved comes first.
		n, reserved := one.size(), one.reserved()
		for _, part := range [][2]uint64{{reserved, n}, {0, reserved}} {
			if i, ok := a.Find(part[0], part[1], free); ok {
				return one.address(i).String(), nil
			}
		}
	}
	return "", apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: range is full", service))
}

func (a serviceAllocation) allocatePorts(s, old *corev1.Service, had map[string]bool) (field.ErrorList, error) {
	own, errs := a.requestPorts(s, old, had)
	if len(errs) > 0 {
		return errs, nil
	}
	numbers := map[int32]int32{} // node ports by port: TCP and UDP may share one
	used := map[protocolPort]bool{}
	for _, port := range s.Spec.Ports {
		used[protocolPort{port.NodePort, port.Protocol}] = true
		if port.NodePort != 0 {
			numbers[port.Port] = port.NodePort
		}
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.NodePort != 0 || !hasNodePorts(s) {
			continue
		}
		number := numbers[port.Port]
		if shared := number != 0 && !used[protocolPort{number, port.Protocol}]; !shared {
			var err error
			if number, err = a.nodePort(own); err != nil {
				return nil, err
			}
		}
		port.NodePort, numbers[port.Port] = number, number
		used[protocolPort{number, port.Protocol}] = true
	}
	if s.Spec.HealthCheckNodePort == 0 && needsHealthCheck(s) {
		number, err := a.nodePort(own)
		if err != nil {
			return nil, err
		}
		s.Spec.HealthCheckNodePort = number
	}
	return nil, nil
}

// requestPorts records the node ports that the client requests. It returns the values of all
// node ports of the service, old and new.
func (a serviceAllocation) requestPorts(s, old *corev1.Service, had map[string]bool) (own map[string]bool, errs field.ErrorList) {
	own = map[string]bool{}
	want := func(port int32, at *field.Path) {
		if port == 0 {
			return
		}
		own[nodePortValue(port)] = true
		if !had[nodePortValue(port)] {
			errs = append(errs, a.requestPort(port, at)...)
		}
	}
	shared := map[int32]int32{} // node ports by port
	for i, port := range s.Spec.Ports {
		if !usesNodePorts(s) {
			break // validation reports it
		}
		at := field.NewPath("spec", "ports").Index(i).Child("nodePort")
		if old == nil && own[nodePortValue(port.NodePort)] && shared[port.Port] != port.NodePort {
			errs = append(errs, field.Invalid(at, port.NodePort, portTaken))
		}
		want(port.NodePort, at)
		if shared[port.Port] == 0 {
			shared[port.Port] = port.NodePort
		}
	}
	switch port := s.Spec.HealthCheckNodePort; {
	case !needsHealthCheck(s):
	case old != nil && needsHealthCheck(old):
		own[nodePortValue(port)] = true // it may not change; validation reports it
	default:
		want(port, field.NewPath("spec", "healthCheckNodePort"))
	}
	return own, errs
}

// protocolPort is a node port with a protocol.
type protocolPort struct {
	number   int32
	protocol corev1.Protocol
}

const portTaken = "provided port is already allocated"

// requestPort records that the client requests a node port.
func (a serviceAllocation) requestPort(port int32, at *field.Path) field.ErrorList {
	if port < a.ranges.FirstPort || port > a.ranges.LastPort {
		return field.ErrorList{field.Invalid(at, port, fmt.Sprintf(
			"provided port is not in the valid range. The range of valid ports is %d-%d", a.ranges.FirstPort, a.ranges.LastPort))}
	}
	a.Request(nodePortValue(port), field.Invalid(at, port, portTaken))
	return nil
}

// nodePort returns a node port that is free, as far as the allocator knows, and not in own, and adds it to own.
func (a serviceAllocation) nodePort(own map[string]bool) (int32, error) {
	port, ok := a.Find(uint64(a.ranges.FirstPort), uint64(a.ranges.LastPort)+1, func(port uint64) bool {
		value := nodePortValue(int32(port))
		return !a.Taken(value) && !own[value]
	})
	if !ok {
		return 0, apierrors.NewInternalError(errors.New("failed to allocate a nodePort: range is full"))
	}
	number := int32(port)
	own[nodePortValue(number)] = true
	return number, nil
}
