package apiserver

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
)

// servicesManager is the label value of IPAddresses that follow a service.
const servicesManager = "ipallocator.k8s.io"

// serviceAddresses reads the allowed addresses of services from ServiceCIDRs and IPAddresses, in the caches of a
// server's informers. The storage, not this type, ensures that no two services have one address. A controller keeps a
// range that is being deleted for longer than these caches lag.
type serviceAddresses struct {
	ranges    networkinglisters.ServiceCIDRLister
	addresses networkinglisters.IPAddressLister
}

// newServiceAddresses returns the addresses that informers know. The caller starts the informers; until they have
// synced, there are no additional ranges.
func newServiceAddresses(informers networkinginformers.Interface) *serviceAddresses {
	return &serviceAddresses{informers.ServiceCIDRs().Lister(), informers.IPAddresses().Lister()}
}

// Ranges returns the ranges for the addresses of services, starting with the server's own.
func (s *serviceAddresses) Ranges(own netip.Prefix) []netip.Prefix {
	all, err := s.ranges.List(labels.Everything())
	if err != nil {
		return []netip.Prefix{own} // a lister reads from memory and cannot fail
	}
	return usableRanges(own, all)
}

// Reserved reports whether an address belongs to an object other than a service.
func (s *serviceAddresses) Reserved(address netip.Addr) bool {
	known, err := s.addresses.Get(address.String())
	return err == nil && known.Labels[networkingv1.LabelManagedBy] != servicesManager
}

// usableRanges returns the ranges of ServiceCIDRs that are ready and not being deleted, in the address family of
// the server's own range. The own range needs no ServiceCIDR, but is not used while all ServiceCIDRs with
// this range are being deleted.
func usableRanges(own netip.Prefix, all []*networkingv1.ServiceCIDR) []netip.Prefix {
	var live, ending []netip.Prefix
	for _, cidr := range all {
		for _, text := range cidr.Spec.CIDRs {
			prefix, err := netip.ParsePrefix(text)
			switch {
			case err != nil || prefix.Addr().Is4() != own.Addr().Is4():
			case cidr.DeletionTimestamp != nil:
				ending = append(ending, prefix)
			case meta.IsStatusConditionTrue(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady):
				live = append(live, prefix)
			}
		}
	}
	slices.SortFunc(live, netip.Prefix.Compare)
	live = slices.Compact(live)
	own = own.Masked()
	if i := slices.Index(live, own); i >= 0 {
		return append([]netip.Prefix{own}, slices.Delete(live, i, i+1)...)
	}
	if slices.Contains(ending, own) {
		return live
	}
	return append([]netip.Prefix{own}, live...)
}
