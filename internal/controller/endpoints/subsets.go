package endpoints

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// portKey identifies a port of endpoints; the zero value stands for a subset without ports.
type portKey struct {
	name           string
	number         int32
	protocol       corev1.Protocol
	appProtocol    string
	hasAppProtocol bool
}

func portKeyOf(p corev1.EndpointPort) portKey {
	return portKey{p.Name, p.Port, p.Protocol, ptr.Deref(p.AppProtocol, ""), p.AppProtocol != nil}
}

func (k portKey) compare(other portKey) int {
	return cmp.Or(
		strings.Compare(k.name, other.name), cmp.Compare(k.number, other.number), cmp.Compare(k.protocol, other.protocol),
		strings.Compare(k.appProtocol, other.appProtocol),
	)
}

func (k portKey) port() corev1.EndpointPort {
	p := corev1.EndpointPort{Name: k.name, Port: k.number, Protocol: k.protocol}
	if k.hasAppProtocol {
		p.AppProtocol = new(k.appProtocol)
	}
	return p
}

// addressKey identifies an address: pods on the host's network share theirs.
type addressKey struct {
	ip  string
	uid types.UID
}

func addressKeyOf(a corev1.EndpointAddress) addressKey {
	k := addressKey{ip: a.IP}
	if a.TargetRef != nil {
		k.uid = a.TargetRef.UID
	}
	return k
}

func (k addressKey) compare(other addressKey) int {
	return cmp.Or(strings.Compare(k.ip, other.ip), cmp.Compare(k.uid, other.uid))
}

// repack returns the smallest number of equivalent subsets, in a canonical order: ports with the
// same addresses and readiness are in one subset. An address that is both ready and not ready for a
// port is not ready.
func repack(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	addresses := map[addressKey]corev1.EndpointAddress{}
	ready := map[portKey]map[addressKey]bool{}
	for _, subset := range subsets {
		for _, port := range portKeys(subset) {
			if ready[port] == nil {
				ready[port] = map[addressKey]bool{}
			}
			for _, a := range subset.Addresses {
				enter(addresses, ready[port], a, true)
			}
			for _, a := range subset.NotReadyAddresses {
				enter(addresses, ready[port], a, false)
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(addresses), addressKey.compare)
	var packed []corev1.EndpointSubset
	index := map[string]int{} // of the subset with these addresses
	for _, port := range slices.SortedFunc(maps.Keys(ready), portKey.compare) {
		if len(ready[port]) == 0 {
			continue
		}
		same := signature(order, ready[port])
		i, ok := index[same]
		if !ok {
			i = len(packed)
			index[same], packed = i, append(packed, subsetOf(order, addresses, ready[port]))
		}
		if port != (portKey{}) {
			packed[i].Ports = append(packed[i].Ports, port.port())
		}
	}
	return packed
}

func portKeys(s corev1.EndpointSubset) []portKey {
	if len(s.Ports) == 0 {
		return []portKey{{}}
	}
	var keys []portKey
	for _, p := range s.Ports {
		keys = append(keys, portKeyOf(p))
	}
	return keys
}

func enter(addresses map[addressKey]corev1.EndpointAddress, ready map[addressKey]bool, a corev1.EndpointAddress, isReady bool) {
	key := addressKeyOf(a)
	if _, ok := addresses[key]; !ok {
		addresses[key] = a
	}
	if before, ok := ready[key]; !ok || before {
		ready[key] = isReady
	}
}

// signature is equal for the same addresses with the same readiness.
func signature(order []addressKey, ready map[addressKey]bool) string {
	var s []byte
	for i, key := range order {
		if isReady, ok := ready[key]; ok {
			s = strconv.AppendInt(s, int64(i), 10)
			s = strconv.AppendBool(s, isReady)
		}
	}
	return string(s)
}

func subsetOf(order []addressKey, addresses map[addressKey]corev1.EndpointAddress, ready map[addressKey]bool) corev1.EndpointSubset {
	var s corev1.EndpointSubset
	for _, key := range order {
		switch isReady, ok := ready[key]; {
		case !ok:
		case isReady:
			s.Addresses = append(s.Addresses, addresses[key])
		default:
			s.NotReadyAddresses = append(s.NotReadyAddresses, addresses[key])
		}
	}
	return s
}
