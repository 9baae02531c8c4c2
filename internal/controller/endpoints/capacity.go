package endpoints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// capacity is the maximum number of addresses in one Endpoints object.
const capacity = 1000

// truncate drops addresses beyond the capacity, and reports whether it dropped any. It keeps ready
// addresses before others, and each subset loses its share.
func truncate(subsets []corev1.EndpointSubset) (kept []corev1.EndpointSubset, truncated bool) {
	ready, notReady := 0, 0
	for _, s := range subsets {
		ready += len(s.Addresses)
		notReady += len(s.NotReadyAddresses)
	}
	if ready+notReady <= capacity {
		return subsets, false
	}
	kept = slices.Clone(subsets)
	if ready > capacity {
		share := shares(ready, capacity)
		for i := range kept {
			kept[i].Addresses, kept[i].NotReadyAddresses = firstOf(kept[i].Addresses, share), nil
		}
	} else {
		share := shares(notReady, capacity-ready)
		for i := range kept {
			kept[i].NotReadyAddresses = firstOf(kept[i].NotReadyAddresses, share)
		}
	}
	// A subset may have lost all of its addresses.
	return slices.DeleteFunc(kept, func(s corev1.EndpointSubset) bool { return len(s.Addresses)+len(s.NotReadyAddresses) == 0 }), true
}

// shares returns a function that divides room among parts of a total, in proportion and rounded up,
// until the room is used up.
func shares(total, room int) func(part int) int {
	left := room
	return func(part int) int {
		share := min((part*room+total-1)/total, left)
		left -= share
		return share
	}
}

func firstOf(addresses []corev1.EndpointAddress, share func(int) int) []corev1.EndpointAddress {
	if len(addresses) == 0 {
		return nil
	}
	return slices.Clone(addresses[:share(len(addresses))])
}
