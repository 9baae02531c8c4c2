package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// placedPort is a port of a container and its path in the object.
type placedPort struct {
	corev1.ContainerPort

	at *field.Path
}

// ofPorts warns about duplicate ports and names of ports. A reference to a port by name finds the first one.
func (w *warnings) ofPorts(spec *corev1.PodSpec, at *field.Path) {
	var all []placedPort
	eachContainer(spec, at, func(c *corev1.Container, at *field.Path) {
		for i, port := range c.Ports {
			all = append(all, placedPort{port, at.Child("ports").Index(i)})
		}
	})
	earlier := earlierPorts{}
	for i, port := range all {
		if port.HostIP != "" && port.HostPort == 0 {
			w.add(port.at, "hostIP set without hostPort: %+v", port.ContainerPort)
		}
		for _, other := range earlier.clashing(&port.ContainerPort) {
			w.add(port.at, "%s port definition with %s", clash(&port.ContainerPort, &all[other].ContainerPort), all[other].at)
		}
		earlier.add(&port.ContainerPort, i)
	}
	named := map[string]*field.Path{}
	for _, port := range all {
		first, taken := named[port.Name]
		switch {
		case port.Name == "":
		case taken:
			w.add(port.at, "duplicate port name %q with %s, services and probes that select ports by name will use %s", port.Name, first, first)
		default:
			named[port.Name] = port.at
		}
	}
}

// clash describes how a port duplicates another one with the same number and protocol, which clashes with it.
func clash(a, b *corev1.ContainerPort) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	}
	return "dangerously ambiguous"
}

// portKey selects earlier ports that have all of its values.
type portKey struct {
	by       portScope
	port     int32
	protocol corev1.Protocol
	hostPort int32  // of byHostPort and byAddress
	hostIP   string // of byAddress
}

// portScope says by which values a portKey selects ports.
type portScope int

const (
	byPort portScope = iota
	byHostPort
	byAddress
)

// earlierPorts has the positions of ports, in order, by the keys that select them. Comparing all pairs of ports would
// take seconds for the ports that fit into a request.
type earlierPorts map[portKey][]int

func (e earlierPorts) add(p *corev1.ContainerPort, position int) {
	for _, key := range []portKey{
		{byPort, p.ContainerPort, p.Protocol, 0, ""},
		{byHostPort, p.ContainerPort, p.Protocol, p.HostPort, ""},
		{byAddress, p.ContainerPort, p.Protocol, p.HostPort, p.HostIP},
	} {
		if len(e[key]) < validate.MaxWarnings { // nobody sees more of them
			e[key] = append(e[key], position)
		}
	}
}

// clashing returns the positions of the ports that clash with a port, in order: on the host, or because one of both is
// not on the host.
func (e earlierPorts) clashing(p *corev1.ContainerPort) []int {
	if p.HostPort == 0 {
		return e[portKey{byPort, p.ContainerPort, p.Protocol, 0, ""}]
	}
	found := slices.Clone(e[portKey{byHostPort, p.ContainerPort, p.Protocol, 0, ""}])
	if p.HostIP == "" {
		found = append(found, e[portKey{byHostPort, p.ContainerPort, p.Protocol, p.HostPort, ""}]...)
	} else {
		found = append(found, e[portKey{byAddress, p.ContainerPort, p.Protocol, p.HostPort, p.HostIP}]...)
		found = append(found, e[portKey{byAddress, p.ContainerPort, p.Protocol, p.HostPort, ""}]...)
	}
	slices.Sort(found)
	return found
}
