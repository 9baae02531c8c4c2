package endpoints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestRepackMakesEquivalentSubsetsEqual(t *testing.T) {
	at := func(ips ...string) (all []corev1.EndpointAddress) {
		for _, ip := range ips {
			all = append(all, corev1.EndpointAddress{IP: ip})
		}
		return all
	}
	ports := func(names ...string) (all []corev1.EndpointPort) {
		for i, name := range names {
			all = append(all, corev1.EndpointPort{Name: name, Port: int32(80 + i), Protocol: corev1.ProtocolTCP})
		}
		return all
	}
	for name, test := range map[string]struct {
		subsets []corev1.EndpointSubset
		want    string
	}{
		"nothing": {nil, ""},
		"what is alike, together": {
			[]corev1.EndpointSubset{{Addresses: at("2", "1"), Ports: ports("a")}, {Addresses: at("3"), Ports: ports("a")}}, "1 2 3 | : a=80",
		},
		"ports of the same addresses": {
			[]corev1.EndpointSubset{{Addresses: at("1"), Ports: ports("b")}, {Addresses: at("1"), Ports: ports("a")}}, "1 | : a=80 b=80",
		},
		"one is not ready on one port": {
			[]corev1.EndpointSubset{{Addresses: at("1"), Ports: ports("a", "b")}, {NotReadyAddresses: at("1"), Ports: ports("a")}}, "| 1 : a=80; 1 | : b=81",
		},
		"not ready counts in any order": {
			[]corev1.EndpointSubset{{NotReadyAddresses: at("1")}, {Addresses: at("1")}}, "| 1 :",
		},
		"no addresses": {[]corev1.EndpointSubset{{Ports: ports("a")}}, ""},
	} {
		got := repack(test.subsets)
		if subsetsText(got) != test.want {
			t.Errorf("%s: %q, want %q", name, subsetsText(got), test.want)
		}
		if again := repack(got); subsetsText(again) != test.want {
			t.Errorf("%s: packed again, %q", name, subsetsText(again))
		}
	}
	// Pods on the network of one host share its address; protocols of applications differ.
	shared := []corev1.EndpointAddress{{IP: "1", TargetRef: &corev1.ObjectReference{UID: "a"}}, {IP: "1", TargetRef: &corev1.ObjectReference{UID: "b"}}}
	got := repack([]corev1.EndpointSubset{{Addresses: shared, Ports: []corev1.EndpointPort{{Port: 80}, {Port: 80, AppProtocol: new("http")}}}})
	if len(got) != 1 || len(got[0].Addresses) != 2 || len(got[0].Ports) != 2 || *got[0].Ports[1].AppProtocol != "http" {
		t.Errorf("%+v", got)
	}
}
