package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestDNSConfig: a pod adds to the DNS configuration of the node, unless its policy is None. Its options replace those
// of the same name. Without a dnsConfig, the runtime copies the node's file.
func TestDNSConfig(t *testing.T) {
	const host = `# nameserver 192.0.2.99
nameserver 192.0.2.1
nameserver 192.0.2.2
search old.test
search corp.test. . example.test
options ndots:5 edns0
options timeout:1
nameserver
`
	own := &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.2", "192.0.2.3", "192.0.2.4"}, Searches: []string{"example.test", "own.test"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "rotate"}},
	}
	added := &runtimeapi.DNSConfig{
		Servers: []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, Searches: []string{"corp.test", "example.test", "own.test"},
		Options: []string{"ndots:2", "edns0", "timeout:1", "rotate"},
	}
	alone := &runtimeapi.DNSConfig{Servers: own.Nameservers, Searches: own.Searches, Options: []string{"ndots:2", "rotate"}}
	for _, test := range []struct {
		policy corev1.DNSPolicy
		asked  *corev1.PodDNSConfig
		want   *runtimeapi.DNSConfig
	}{
		{corev1.DNSClusterFirst, own, added},
		{corev1.DNSClusterFirstWithHostNet, own, added},
		{corev1.DNSDefault, own, added},
		{corev1.DNSNone, own, alone},
		{corev1.DNSClusterFirst, nil, nil},
		{corev1.DNSDefault, nil, nil},
	} {
		pod := aPod()
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = test.policy, test.asked
		var text []byte
		if addsToHostDNS(pod) {
			text = []byte(host)
		}
		got := dnsConfig(pod, text)
		if (got == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", test.policy, got, test.want)
			continue
		}
		if got == nil {
			continue
		}
		for _, part := range []struct{ got, want []string }{{got.Servers, test.want.Servers}, {got.Searches, test.want.Searches}, {got.Options, test.want.Options}} {
			if d := cmp.Diff(part.want, part.got); d != "" {
				t.Errorf("%s: (-want +got)\n%s", test.policy, d)
			}
		}
	}
}
