// Package servicecidrs is the controller of the ranges from which services get their addresses, and
// of the IPAddresses that map each address to its service.
//
//	ServiceCIDRs, addresses in use ──▶ DecideRange (pure): protected and ready; released when unused
//	service or none, IPAddress or none ──▶ DecideAddress (pure): create, delete, keep
//
// The API server keeps the addresses of services unique in its store, without IPAddresses; this
// controller derives the IPAddresses. A ServiceCIDR that is being deleted stays while one of its
// addresses is in use and in no other range.
package servicecidrs

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
)

const (
	// Finalizer keeps a ServiceCIDR while one of its addresses is in use.
	Finalizer = inuse.ServiceCIDRProtection
	// Grace is how long a ServiceCIDR that is being deleted is kept in any case: until then an API
	// server that has not observed the deletion may allocate one of its addresses.
	Grace = 10 * time.Second
	// managedBy is the value of the label of IPAddresses of services, as in Kubernetes.
	managedBy = "ipallocator.k8s.io"
)

// The messages of the condition Ready.
const (
	readyMessage = "Kubernetes Service CIDR is ready"
	inUseMessage = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)

// RangePlan is the next step for a ServiceCIDR: at most one of the writes at a time, since each
// makes the precondition of the next one outdated.
type RangePlan struct {
	// SetFinalizers is set if the finalizers must be replaced by Finalizers.
	SetFinalizers bool
	Finalizers    []string
	// Condition is the condition to set; nil if the current one is right.
	Condition *metav1.Condition
	// RequeueAfter is the time after which the decision may change without an event; 0 means never.
	RequeueAfter time.Duration
}

// DecideRange decides about a ServiceCIDR. all are all ServiceCIDRs, used the addresses in use.
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
		return RangePlan{RequeueAfter: left}
	}
	rest := slices.DeleteFunc(slices.Clone(cidr.Finalizers), func(f string) bool { return f == Finalizer })
	return RangePlan{SetFinalizers: true, Finalizers: rest}
}

// changed returns the desired condition Ready, or nil if it is set already.
func changed(cidr *networkingv1.ServiceCIDR, wanted metav1.Condition, now time.Time) *metav1.Condition {
	wanted.Type, wanted.LastTransitionTime = networkingv1.ServiceCIDRConditionReady, metav1.NewTime(now)
	is := meta.FindStatusCondition(cidr.Status.Conditions, wanted.Type)
	if is != nil && is.Status == wanted.Status && is.Reason == wanted.Reason && (is.Message == wanted.Message || is.Status == metav1.ConditionTrue) {
		return nil // the API server says that its own range is ready in words of its own
	}
	return &wanted
}

// holds reports whether an address in use is in no other range. Ranges that are being deleted do
// not count: otherwise two such ranges would rely on each other, and neither would keep the
// address.
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

// AddressStep is the next step for the IPAddress of an address: Create, Delete or Keep.
//
//sumtype:decl
type AddressStep interface{ addressStep() }

type (
	// Create creates the IPAddress.
	Create struct{ Address *networkingv1.IPAddress }
	// Delete deletes it. If it is another service's, the next step creates one.
	Delete struct{ Address *networkingv1.IPAddress }
	// Keep leaves the IPAddress unchanged.
	Keep struct{}
)

func (Create) addressStep() {}
func (Delete) addressStep() {}
func (Keep) addressStep()   {}

// DecideAddress decides about the IPAddress of an address. service is the Service that has the
// address, and known the IPAddress of that name; each may be nil. IPAddresses of other managers are
// left alone.
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
		if address, err := netip.ParseAddr(text); err == nil { // "None" is not an address
			all = append(all, address)
		}
	}
	return all
}
