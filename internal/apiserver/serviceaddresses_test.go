package apiserver

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func aRange(status metav1.ConditionStatus, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
		Status: networkingv1.ServiceCIDRStatus{Conditions: []metav1.Condition{
			{Type: networkingv1.ServiceCIDRConditionReady, Status: status},
		}},
	}
}

func TestUsableRangesOfServices(t *testing.T) {
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	deleted := func(cidr *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDR {
		cidr.DeletionTimestamp = &metav1.Time{}
		return cidr
	}
	for name, test := range map[string]struct {
		all  []*networkingv1.ServiceCIDR
		want string
	}{
		"none":                    {nil, "[10.1.0.0/24]"},
		"its own":                 {[]*networkingv1.ServiceCIDR{aRange(yes, "10.1.0.0/24")}, "[10.1.0.0/24]"},
		"further ones":            {[]*networkingv1.ServiceCIDR{aRange(yes, "10.3.0.0/24"), aRange(yes, "10.1.0.0/24"), aRange(yes, "10.0.0.0/24")}, "[10.1.0.0/24 10.0.0.0/24 10.3.0.0/24]"},
		"twice the same":          {[]*networkingv1.ServiceCIDR{aRange(yes, "10.3.0.0/24"), aRange(yes, "10.3.0.0/24")}, "[10.1.0.0/24 10.3.0.0/24]"},
		"one that is not ready":   {[]*networkingv1.ServiceCIDR{aRange(no, "10.3.0.0/24")}, "[10.1.0.0/24]"},
		"one that is deleted":     {[]*networkingv1.ServiceCIDR{deleted(aRange(yes, "10.3.0.0/24"))}, "[10.1.0.0/24]"},
		"another family":          {[]*networkingv1.ServiceCIDR{aRange(yes, "fd00::/112", "10.3.0.0/24")}, "[10.1.0.0/24 10.3.0.0/24]"},
		"its own is deleted":      {[]*networkingv1.ServiceCIDR{deleted(aRange(yes, "10.1.0.0/24")), aRange(yes, "10.3.0.0/24")}, "[10.3.0.0/24]"},
		"its own is there, still": {[]*networkingv1.ServiceCIDR{deleted(aRange(yes, "10.1.0.0/24")), aRange(yes, "10.1.0.0/24")}, "[10.1.0.0/24]"},
	} {
		if got := fmt.Sprint(usableRanges(netip.MustParsePrefix("10.1.0.7/24"), test.all)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// An address with an IPAddress is reserved, unless the IPAddress belongs to a service.
func TestReservedServiceAddresses(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	s := newServiceAddresses(factory.Networking().V1())
	known := factory.Networking().V1().IPAddresses().Informer().GetIndexer()
	for name, labels := range map[string]map[string]string{"10.1.0.7": {networkingv1.LabelManagedBy: servicesManager}, "10.1.0.8": nil} {
		if err := known.Add(&networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
			t.Fatal(err)
		}
	}
	for address, want := range map[string]bool{"10.1.0.7": false, "10.1.0.8": true, "10.1.0.9": false} {
		if got := s.Reserved(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}
