package builtin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
)

func service(name, spec string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {%s}}`, name, spec)
}

// servicesIn returns a server whose services get their addresses from a range.
func servicesIn(t *testing.T, prefix string) fakeServer {
	t.Helper()
	return newFakeServerIn(t, core.ServiceRanges{Addresses: netip.MustParsePrefix(prefix), FirstPort: 30000, LastPort: 30003})
}

func specOf(t *testing.T, obj any, err error) corev1.ServiceSpec {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*corev1.Service).Spec
}

func TestServiceGetsAnAddress(t *testing.T) {
	p := servicesIn(t, "10.1.0.0/24")
	obj, err := p.try(service("web", "ports: [{port: 80}]"))
	spec := specOf(t, obj, err)
	if ip := netip.MustParseAddr(spec.ClusterIP); !netip.MustParsePrefix("10.1.0.0/24").Contains(ip) {
		t.Errorf("address %s", ip)
	}
	if !slices.Equal(spec.ClusterIPs, []string{spec.ClusterIP}) || !slices.Equal(spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol}) || *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		t.Errorf("%v %v %v", spec.ClusterIPs, spec.IPFamilies, *spec.IPFamilyPolicy)
	}
	// The client need not send the allocated values, and cannot change them.
	obj, err = p.replace(service("web", "ports: [{port: 81}]"))
	if again := specOf(t, obj, err); again.ClusterIP != spec.ClusterIP || again.Ports[0].Port != 81 {
		t.Errorf("updated to %s:%d", again.ClusterIP, again.Ports[0].Port)
	}
	if _, err := p.replace(service("web", "clusterIP: 10.1.0.7, ports: [{port: 80}]")); !apierrors.IsInvalid(err) {
		t.Errorf("another address: %v", err)
	}
	obj, err = p.try(service("headless", "clusterIP: None"))
	if spec := specOf(t, obj, err); spec.ClusterIPs[0] != corev1.ClusterIPNone {
		t.Errorf("headless: %v", spec.ClusterIPs)
	}
}

func TestServiceTypes(t *testing.T) {
	p := servicesIn(t, "fd00::/112")
	obj, err := p.try(service("web", "ports: [{port: 80}]"))
	first := specOf(t, obj, err)
	if !strings.HasPrefix(first.ClusterIP, "fd00::") || first.IPFamilies[0] != corev1.IPv6Protocol {
		t.Errorf("%s %v", first.ClusterIP, first.IPFamilies)
	}
	obj, err = p.replace(service("web", "type: NodePort, ports: [{port: 80, name: t}, {port: 80, name: u, protocol: UDP}, {port: 81, name: v}]"))
	exposed := specOf(t, obj, err)
	if a, b, c := exposed.Ports[0].NodePort, exposed.Ports[1].NodePort, exposed.Ports[2].NodePort; a != b || a == c || a < 30000 || c > 30003 {
		t.Errorf("node ports %d %d %d", a, b, c)
	}
	obj, err = p.replace(service("web", "type: LoadBalancer, externalTrafficPolicy: Local, ports: [{port: 80, name: t}]"))
	balanced := specOf(t, obj, err)
	if balanced.Ports[0].NodePort != exposed.Ports[0].NodePort || balanced.HealthCheckNodePort == 0 || balanced.ClusterIP != first.ClusterIP {
		t.Errorf("%+v", balanced)
	}
	// A patch of the type leaves the rest unchanged.
	obj, err = p.replace(service("web", fmt.Sprintf("type: ClusterIP, externalTrafficPolicy: Local, allocateLoadBalancerNodePorts: true, ports: [{port: 80, nodePort: %d}]", balanced.Ports[0].NodePort)))
	if inside := specOf(t, obj, err); inside.Ports[0].NodePort != 0 || inside.HealthCheckNodePort != 0 {
		t.Errorf("%+v", inside)
	}
	obj, err = p.replace(service("web", "type: ExternalName, externalName: example.com, clusterIP: \""+first.ClusterIP+"\""))
	if outside := specOf(t, obj, err); outside.ClusterIP != "" || len(outside.ClusterIPs) != 0 || len(outside.IPFamilies) != 0 {
		t.Errorf("%+v", outside)
	}
	obj, err = p.replace(service("web", "ports: [{port: 80}]"))
	if back := specOf(t, obj, err); back.ClusterIP == "" {
		t.Error("no address after it was a name")
	}
}

// TestServiceKeepsNodePorts checks that node ports belong to the names of ports. External names never have node ports.
func TestServiceKeepsNodePorts(t *testing.T) {
	p := servicesIn(t, "10.1.0.0/24")
	p.create(service("name", "type: ExternalName, externalName: example.com, ports: [{port: 80, nodePort: 30001}]"))
	p.create(service("web", "type: NodePort, ports: [{name: a, port: 80, nodePort: 30001}, {name: b, port: 81, nodePort: 30002}]"))
	obj, err := p.replace(service("web", "type: NodePort, ports: [{name: b, port: 80}, {name: a, port: 90}]"))
	if spec := specOf(t, obj, err); spec.Ports[0].NodePort != 30002 || spec.Ports[1].NodePort != 30001 {
		t.Errorf("swapped: %+v", spec.Ports)
	}
	obj, err = p.replace(service("web", "type: NodePort, ports: [{name: b, port: 80, nodePort: 30001}, {name: a, port: 90}]"))
	if spec := specOf(t, obj, err); spec.Ports[0].NodePort != 30001 || spec.Ports[1].NodePort == 30001 {
		t.Errorf("one has the other's: %+v", spec.Ports)
	}
	obj, err = p.replace(service("web", "ports: [{name: c, port: 80, nodePort: 30001}]"))
	if spec := specOf(t, obj, err); spec.Ports[0].NodePort != 0 {
		t.Errorf("within the cluster: %+v", spec.Ports)
	}
}

// TestServiceFamilies checks that a headless service without a selector has both families until its policy says
// otherwise.
func TestServiceFamilies(t *testing.T) {
	p := servicesIn(t, "10.1.0.0/24")
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	obj, err := p.try(service("free", "clusterIP: None"))
	if spec := specOf(t, obj, err); !slices.Equal(spec.IPFamilies, both) {
		t.Errorf("%v", spec.IPFamilies)
	}
	const want = "must be 'SingleStack' to release the secondary IP family"
	if _, err := p.replace(service("free", "clusterIP: None, ipFamilies: [IPv4]")); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	obj, err = p.replace(service("free", "clusterIP: None, ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack"))
	if spec := specOf(t, obj, err); !slices.Equal(spec.IPFamilies, both[:1]) {
		t.Errorf("%v", spec.IPFamilies)
	}
	// A preference stays valid for existing values, even if it could not be fulfilled now.
	p.create(service("preferred", "clusterIP: None, ipFamilyPolicy: PreferDualStack"))
	obj, err = p.replace(service("preferred", "clusterIP: None, ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6], selector: {a: b}"))
	if spec := specOf(t, obj, err); !slices.Equal(spec.IPFamilies, both) {
		t.Errorf("%v", spec.IPFamilies)
	}
}

func TestServiceAsksForAValue(t *testing.T) {
	p := servicesIn(t, "10.1.0.0/24")
	p.create(service("a", "clusterIP: 10.1.0.9, type: NodePort, ports: [{port: 80, nodePort: 30001}]"))
	for spec, want := range map[string]string{
		"clusterIP: 10.1.0.9, ports: [{port: 80}]":              "spec.clusterIPs: Invalid value: [\"10.1.0.9\"]: failed to allocate IP 10.1.0.9: provided IP is already allocated",
		"clusterIP: 10.1.0.1, ports: [{port: 80}]":              "spec.clusterIPs: Invalid value: [\"10.1.0.1\"]: failed to allocate IP 10.1.0.1: provided IP is already allocated",
		"clusterIP: 10.2.0.9, ports: [{port: 80}]":              "failed to allocate IP 10.2.0.9: the provided network does not match the current range",
		"clusterIP: 10.1.0.0, ports: [{port: 80}]":              "failed to allocate IP 10.1.0.0: the provided IP (10.1.0.0) is not in the valid range. The range of valid IPs is 10.1.0.0/24",
		"clusterIP: 10.1.0.255, ports: [{port: 80}]":            "the provided IP (10.1.0.255) is not in the valid range",
		"type: NodePort, ports: [{port: 80, nodePort: 30001}]":  "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
		"type: NodePort, ports: [{port: 80, nodePort: 80}]":     "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-30003",
		"clusterIP: None, type: ExternalName, externalName: a":  "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
		"ipFamilies: [IPv6], ports: [{port: 80}]":               "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
		"ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]": "this cluster is not configured for dual-stack services",
	} {
		if _, err := p.try(service("b", spec)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
	const twice = "type: NodePort, ports: [{port: 80, name: a, nodePort: 30002}, {port: 81, name: b, nodePort: 30002, protocol: UDP}]"
	_, err := p.try(service("b", twice))
	if want := "spec.ports[1].nodePort: Invalid value: 30002: provided port is already allocated"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	// The first address belongs to default/kubernetes: the name alone is not enough.
	if _, err := p.try(service("kubernetes", "clusterIP: 10.1.0.1, ports: [{port: 443}]")); !apierrors.IsInvalid(err) {
		t.Errorf("the service kubernetes of another namespace: %v", err)
	}
	// An update keeps the values of the service, even if the client sends them.
	if _, err := p.replace(service("a", "clusterIP: 10.1.0.9, type: NodePort, ports: [{port: 81, nodePort: 30001}]")); err != nil {
		t.Error(err)
	}
}

// TestServiceAddressHasOneSpelling checks that all spellings of an IPv6 address are one address, which its service frees.
func TestServiceAddressHasOneSpelling(t *testing.T) {
	spellings := []string{"fd00::a", "fd00:0::A", "fd00:0:0:0:0:0:0:a", "FD00::000A"}
	for _, first := range spellings {
		p := servicesIn(t, "fd00::/112")
		for range 2 {
			obj, err := p.try(service("a", "clusterIP: \""+first+"\", ports: [{port: 80}]"))
			if got := specOf(t, obj, err).ClusterIP; got != first {
				t.Errorf("%s is stored as %s", first, got)
			}
			for _, second := range spellings {
				_, err := p.try(service("b", "clusterIP: \""+second+"\", ports: [{port: 80}]"))
				if want := "failed to allocate IP fd00::a: provided IP is already allocated"; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s beside %s: %v", second, first, err)
				}
			}
			if _, err := p.replace(service("a", "clusterIP: \""+first+"\", ports: [{port: 81}]")); err != nil {
				t.Error(err)
			}
			services := p.mains["services"]
			if _, _, err := services.Delete(requestContext(services.Resource), "a", nil, &metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestServiceRangeIsUsedUp checks that concurrent requests get every address of a range once, except the address of
// default/kubernetes, before it is full.
func TestServiceRangeIsUsedUp(t *testing.T) {
	p := servicesIn(t, "10.1.0.0/28")
	var wg sync.WaitGroup
	var mu sync.Mutex
	given := map[string]bool{}
	for i := range 13 {
		wg.Go(func() {
			obj, err := p.try(service(fmt.Sprintf("s%d", i), "ports: [{port: 80}]"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			given[obj.(*corev1.Service).Spec.ClusterIP] = true
		})
	}
	wg.Wait()
	if len(given) != 13 || given["10.1.0.0"] || given["10.1.0.1"] || given["10.1.0.15"] {
		t.Errorf("%d addresses: %v", len(given), given)
	}
	if _, err := p.try(service("more", "ports: [{port: 80}]")); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "range is full") {
		t.Errorf("one more: %v", err)
	}
	if _, err := p.try(service("named", "type: ExternalName, externalName: example.com")); err != nil {
		t.Error(err)
	}
}
