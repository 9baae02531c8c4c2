package endpoints

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
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// perSubset is the maximum number of mirrored addresses per subset: one slice has a subset's
// addresses of one family.
const perSubset = 1000

// electionAnnotation marks Endpoints that hold an old leader election. They have no addresses.
const electionAnnotation = "control-plane.alpha.kubernetes.io/leader"

// mirroringPlan has the slices to write and to delete.
type mirroringPlan struct {
	Create, Update, Remove []*discoveryv1.EndpointSlice
	// Skipped is the number of addresses that are not mirrored because there are too many.
	Skipped int
}

// isMirrored reports whether Endpoints must be mirrored. Nil stands for missing Endpoints, or a
// missing Service.
func isMirrored(endpoints *corev1.Endpoints, service *corev1.Service) bool {
	if endpoints == nil || service == nil || len(service.Spec.Selector) > 0 || endpoints.Labels[discoveryv1.LabelSkipMirror] == "true" {
		return false
	}
	_, election := endpoints.Annotations[electionAnnotation]
	return !election
}

// decideMirroring compares the slices that mirror Endpoints with the stored ones.
func decideMirroring(endpoints *corev1.Endpoints, stored []*discoveryv1.EndpointSlice) mirroringPlan {
	desired, skipped := desiredSlices(endpoints)
	p := mirroringPlan{Skipped: skipped}
	left := slices.SortedFunc(slices.Values(stored), func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	take := func(fits func(*discoveryv1.EndpointSlice) bool) *discoveryv1.EndpointSlice {
		i := slices.IndexFunc(left, fits)
		if i < 0 {
			return nil
		}
		s := left[i]
		left = slices.Delete(left, i, i+1)
		return s
	}
	// A slice keeps its ports where that is possible; the other desired slices reuse the remaining
	// existing ones, which saves deletions and creations.
	var without []*discoveryv1.EndpointSlice
	for _, s := range desired {
		if was := take(func(was *discoveryv1.EndpointSlice) bool { return kindOf(was) == kindOf(s) }); was != nil {
			p.update(endpoints, was, s)
		} else {
			without = append(without, s)
		}
	}
	for _, s := range without {
		if was := take(func(was *discoveryv1.EndpointSlice) bool { return was.AddressType == s.AddressType }); was != nil {
			p.update(endpoints, was, s)
		} else {
			p.Create = append(p.Create, s)
		}
	}
	p.Remove = left
	return p
}

func (p *mirroringPlan) update(owner *corev1.Endpoints, stored, desired *discoveryv1.EndpointSlice) {
	next := stored.DeepCopy()
	next.Labels, next.Annotations, next.Ports, next.Endpoints = desired.Labels, desired.Annotations, desired.Ports, desired.Endpoints
	if !metav1.IsControlledBy(stored, owner) {
		next.OwnerReferences = desired.OwnerReferences
	}
	if !equality.Semantic.DeepEqual(stored, next) {
		p.Update = append(p.Update, next)
	}
}

// kindOf is equal for slices that can have the same endpoints.
func kindOf(s *discoveryv1.EndpointSlice) string {
	ports := make([]string, 0, len(s.Ports))
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%q %d %s %q", ptr.Deref(p.Name, ""), ptr.Deref(p.Port, 0), ptr.Deref(p.Protocol, ""), ptr.Deref(p.AppProtocol, "")))
	}
	slices.Sort(ports)
	return fmt.Sprint(s.AddressType, ports)
}

// desiredSlices has a slice for each subset and address family.
func desiredSlices(endpoints *corev1.Endpoints) (all []*discoveryv1.EndpointSlice, skipped int) {
	for _, subset := range repack(endpoints.Subsets) {
		byFamily, over := endpointsOf(subset)
		skipped += over
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			if len(byFamily[family]) > 0 {
				s := newSlice(endpoints, family)
				s.Ports, s.Endpoints = slicePortsOf(subset), byFamily[family]
				all = append(all, s)
			}
		}
	}
	return all, skipped
}

func newSlice(endpoints *corev1.Endpoints, family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: endpoints.Namespace, GenerateName: namePrefix(endpoints.Name), Labels: map[string]string{}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(endpoints, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
		},
		AddressType: family,
	}
	maps.Copy(s.Labels, endpoints.Labels)
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = endpoints.Name, mirroringManagedBy
	maps.Copy(s.Annotations, endpoints.Annotations)
	delete(s.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(s.Annotations, corev1.LastAppliedConfigAnnotation)
	return s
}

func namePrefix(name string) string {
	if prefix := name + "-"; len(apivalidation.NameIsDNSSubdomain(prefix, true)) == 0 {
		return prefix
	}
	return name
}

// endpointsOf returns the endpoints of a subset by family, and the number of surplus addresses.
func endpointsOf(subset corev1.EndpointSubset) (byFamily map[discoveryv1.AddressType][]discoveryv1.Endpoint, over int) {
	byFamily = map[discoveryv1.AddressType][]discoveryv1.Endpoint{}
	added := 0
	add := func(addresses []corev1.EndpointAddress, ready bool) {
		for _, a := range addresses {
			ip, err := netip.ParseAddr(a.IP)
			switch {
			case err != nil: // the API server refuses it
				continue
			case added == perSubset:
				over++
				continue
			}
			added++
			family := discoveryv1.AddressTypeIPv4
			if ip.Unmap().Is6() {
				family = discoveryv1.AddressTypeIPv6
			}
			byFamily[family] = append(byFamily[family], endpointOf(a, ip.Unmap(), ready))
		}
	}
	add(subset.Addresses, true)
	add(subset.NotReadyAddresses, false)
	return byFamily, over
}

func endpointOf(a corev1.EndpointAddress, ip netip.Addr, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: a.TargetRef, NodeName: a.NodeName,
	}
	if a.Hostname != "" {
		e.Hostname = new(a.Hostname)
	}
	return e
}

func slicePortsOf(subset corev1.EndpointSubset) []discoveryv1.EndpointPort {
	var ports []discoveryv1.EndpointPort
	for _, p := range subset.Ports {
		ports = append(ports, discoveryv1.EndpointPort{
			Name: new(p.Name), Port: new(p.Port), Protocol: new(cmp.Or(p.Protocol, corev1.ProtocolTCP)), AppProtocol: p.AppProtocol,
		})
	}
	return ports
}
