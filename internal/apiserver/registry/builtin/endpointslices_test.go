package builtin

import (
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestLongListsInEndpointSlices checks that each of too many addresses is checked, and none of too many ports.
func TestLongListsInEndpointSlices(t *testing.T) {
	addresses := make([]string, endpointAddresses+1)
	for i := range addresses {
		addresses[i] = "10.0.0.1"
	}
	addresses[0] = "nowhere"
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: addresses}},
		Ports:       make([]discoveryv1.EndpointPort, slicePorts+1),
	}
	var got []string
	for _, err := range append(validateSliceEndpoints(s), validateEndpointSlice(s)...) {
		got = append(got, err.Error())
	}
	want := []string{
		"endpoints[0].addresses: Too many: 101: must have at most 100 items",
		"endpoints[0].addresses[0]: Invalid value: \"nowhere\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
		"ports: Too many: 20001: must have at most 20000 items",
	}
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}
