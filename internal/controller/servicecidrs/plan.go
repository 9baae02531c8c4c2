// Package servicecidrs is the controller of the ranges that services have their addresses from, and
// of the IPAddresses that say which service has which.
//
//	ServiceCIDRs, addresses in use ──▶ DecideRange (pure): protected and ready; let go when unused
//	service or none, IPAddress or none ──▶ DecideAddress (pure): create, delete, keep
//
// The API server keeps the addresses of services unique in its store, without IPAddresses; these
// follow. A ServiceCIDR that is being deleted stays while an address of it is in use that no other
// range contains.
package servicecidrs

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/finalizers"
)

const (
	// Finalizer keeps a ServiceCIDR while an address of it is in use.
	Finalizer = finalizers.ServiceCIDRProtection
	// Grace is how long a ServiceCIDR that is being deleted is kept in any case: until then an API
	// server that does not know yet may take an address of it.
	Grace = 10 * time.Second
	// managedBy is the value of the label of IPAddresses of services. It is Kubernetes'.
	managedBy = "ipallocator.k8s.io"
)

// The messages of the condition Ready.
const (
	readyMessage = "Kubernetes Service CIDR is ready"
	inUseMessage = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)

// RangePlan is what to do about a ServiceCIDR: at most one of the writes at a time, since each makes
// the next one's condition outdated.
type RangePlan struct {
	// SetFinalizers is set if the finalizers are to be Finalizers.
	SetFinalizers bool
	Finalizers    []string
	// Condition is to be set; nil if it is as it should be.
	Condition *metav1.Condition
	// Again is after how long the decision may be another one; 0 if only after an event.
	Again time.Duration
}

// DecideRange decides about a ServiceCIDR. all are all of them, used the addresses in use.
func DecideRange(cidr *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, used []netip.Addr, now time.Time) RangePlan {
	protected := slices.Contains(cidr.Finalizers, Finalizer)
	if cidr.DeletionTimestamp == nil {
		if !protected {
			return RangePlan{SetFinalizers: true, Finalizers: append(slices.Clone(cidr.Finalizers), Finalizer)}
		}
		return RangePlan{Condition: changed(cidr, metav1.Condition{Status: metav1.ConditionTrue, Message: readyMessage}, now)}
	}
	switch left := cidr.DeletionTimestamp.Add(Grace).Sub(now); {
	case !protected:
		return RangePlan{}
	case holds(cidr, all, used):
		return RangePlan{Condition: changed(cidr, metav1.Condition{
			Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating, Message: inUseMessage,
		}, now)}
	case left > 0:
		return RangePlan{Again: left}
	}
	rest := slices.DeleteFunc(slices.Clone(cidr.Finalizers), func(f string) bool { return f == Finalizer })
	return RangePlan{SetFinalizers: true, Finalizers: rest}
}

// changed returns the condition Ready as it should be, or nil if it is like that.
func changed(cidr *networkingv1.ServiceCIDR, wanted metav1.Condition, now time.Time) *metav1.Condition {
	wanted.Type, wanted.LastTransitionTime = networkingv1.ServiceCIDRConditionReady, metav1.NewTime(now)
	is := meta.FindStatusCondition(cidr.Status.Conditions, wanted.Type)
	if is != nil && is.Status == wanted.Status && is.Reason == wanted.Reason && (is.Message == wanted.Message || is.Status == metav1.ConditionTrue) {
		return nil // the API server says that its own range is ready in words of its own
	}
	return &wanted
}

// holds reports whether an address in use would be in no range if there were not this one. Ranges
// that are being deleted themselves do not count: of two, neither would keep the address.
func holds(cidr *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, used []netip.Addr) bool {
	var others []netip.Prefix
	for _, other := range all {
		if other.Name != cidr.Name && other.DeletionTimestamp == nil {
			others = append(others, prefixes(other)...)
		}
	}
	own := prefixes(cidr)
	return slices.ContainsFunc(used, func(address netip.Addr) bool { return contains(own, address) && !contains(others, address) })
}

func contains(ranges []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(address) })
}

func prefixes(cidr *networkingv1.ServiceCIDR) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range cidr.Spec.CIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil { // validation lets nothing else in
			all = append(all, prefix)
		}
	}
	return all
}

// AddressStep is what to do about the IPAddress of an address: Create, Delete or Keep.
//
//sumtype:decl
type AddressStep interface{ addressStep() }

type (
	// Create creates the IPAddress.
	Create struct{ Address *networkingv1.IPAddress }
	// Delete deletes it. If it is another service's, the next step creates one.
	Delete struct{ Address *networkingv1.IPAddress }
	// Keep does nothing.
	Keep struct{}
)

func (Create) addressStep() {}
func (Delete) addressStep() {}
func (Keep) addressStep()   {}

// DecideAddress decides about the IPAddress of an address. service is the one that has the address,
// and known the IPAddress of that name; each may be nil. What somebody else has made is left alone.
func DecideAddress(address netip.Addr, service *corev1.Service, known *networkingv1.IPAddress) AddressStep {
	switch {
	case known == nil && service == nil:
		return Keep{}
	case known == nil:
		return Create{addressOf(address, service)}
	case known.DeletionTimestamp != nil || known.Labels[networkingv1.LabelManagedBy] != managedBy:
		return Keep{}
	case service == nil || known.Spec.ParentRef == nil || *known.Spec.ParentRef != parentOf(service):
		return Delete{known}
	}
	return Keep{}
}

func addressOf(address netip.Addr, service *corev1.Service) *networkingv1.IPAddress {
	family := corev1.IPv6Protocol
	if address.Is4() {
		family = corev1.IPv4Protocol
	}
	parent := parentOf(service)
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: address.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: managedBy,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &parent},
	}
}

func parentOf(service *corev1.Service) networkingv1.ParentReference {
	return networkingv1.ParentReference{Resource: "services", Namespace: service.Namespace, Name: service.Name}
}

// addressesOf returns the cluster IPs of a service.
func addressesOf(service *corev1.Service) []netip.Addr {
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var all []netip.Addr
	for _, text := range service.Spec.ClusterIPs {
		if address, err := netip.ParseAddr(text); err == nil { // "None" is no address
			all = append(all, address)
		}
	}
	return all
}
