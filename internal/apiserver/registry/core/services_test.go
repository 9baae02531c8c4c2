package core

import (
	"net/netip"
	"testing"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
)

// The first addresses of a range are allocated last, and the very first one never.
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
