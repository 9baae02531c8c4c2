package builtin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// discoveryGroup returns the API group discovery.k8s.io/v1: EndpointSlices.
func discoveryGroup() registry.Group {
	return registry.Group{
		GroupVersion: discoveryv1.SchemeGroupVersion,
		AddToScheme:  discoveryv1.AddToScheme,
		Resources:    []registry.Resource{endpointSlices()},
	}
}

const (
	slicePorts        = 20000 // maximum of ports in one slice
	sliceEndpoints    = 1000  // maximum of endpoints in one slice
	endpointAddresses = 100   // maximum of addresses of one endpoint
	endpointHints     = 8     // maximum of zone hints, and of node hints, of an endpoint
)

func endpointSlices() registry.Resource {
	return registry.Define[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](registry.Resource{
		GroupVersion:        discoveryv1.SchemeGroupVersion,
		Kind:                "EndpointSlice",
		Plural:              "endpointslices",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("AddressType", "Type of the addresses.", func(s *discoveryv1.EndpointSlice) string { return string(s.AddressType) }),
		table.Text("Ports", "Ports of all endpoints.", slicePortsText),
		table.Text("Endpoints", "Addresses.", sliceAddresses),
		table.Age(),
	}, registry.Strategy[*discoveryv1.EndpointSlice]{
		Warn: warnOfEndpointSlice,
		Default: func(s *discoveryv1.EndpointSlice) {
			for i := range s.Ports {
				registry.SetDefaultPtr(&s.Ports[i].Name, "")
				registry.SetDefaultPtr(&s.Ports[i].Protocol, corev1.ProtocolTCP)
			}
		},
		// In v1, clients cannot write the topology of v1beta1.
		PrepareForCreate: dropSliceTopology,
		PrepareForUpdate: func(s, old *discoveryv1.EndpointSlice) {
			if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
				dropSliceTopology(s)
			}
		},
		Validate:       validateEndpointSlice,
		ValidateCreate: validateSliceEndpoints,
		ValidateUpdate: func(s, old *discoveryv1.EndpointSlice) field.ErrorList {
			errs := validate.ImmutableUnnamed(s.AddressType, old.AddressType, field.NewPath("addressType"))
			if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
				errs = append(errs, validateSliceEndpoints(s)...)
			}
			return errs
		},
		// This includes labels: they say which service the slice belongs to.
		Desired: func(s *discoveryv1.EndpointSlice) any { return []any{s.Endpoints, s.Ports, s.AddressType, s.Labels} },
	})
}

func dropSliceTopology(s *discoveryv1.EndpointSlice) {
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}

func slicePortsText(s *discoveryv1.EndpointSlice) string {
	if len(s.Ports) == 0 {
		return "<unset>"
	}
	return table.Join(s.Ports, func(p discoveryv1.EndpointPort) string {
		if p.Port == nil {
			return "*"
		}
		return strconv.Itoa(int(*p.Port))
	})
}

func sliceAddresses(s *discoveryv1.EndpointSlice) string {
	const shown = 3
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Addresses...)
	}
	switch {
	case len(all) == 0:
		return "<unset>"
	case len(all) > shown:
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:shown], ","), len(all)-shown)
	}
	return strings.Join(all, ",")
}

func validateEndpointSlice(s *discoveryv1.EndpointSlice) field.ErrorList {
	ports := field.NewPath("ports")
	errs := validate.OneOf(s.AddressType, field.NewPath("addressType"),
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	if tooMany := validate.MaxItems(s.Ports, ports, slicePorts); len(tooMany) > 0 {
		return append(errs, tooMany...)
	}
	errs = append(errs, validate.Each(s.Ports, ports, validateSlicePort)...)
	names := map[string]bool{}
	for i, p := range s.Ports {
		name := ptr.Deref(p.Name, "")
		if names[name] {
			errs = append(errs, field.Duplicate(ports.Index(i).Child("name"), name))
		}
		names[name] = true
	}
	return errs
}

func validateSliceEndpoints(s *discoveryv1.EndpointSlice) field.ErrorList {
	list := field.NewPath("endpoints")
	if errs := validate.MaxItems(s.Endpoints, list, sliceEndpoints); len(errs) > 0 {
		return errs
	}
	return validate.Each(s.Endpoints, list, func(e *discoveryv1.Endpoint, at *field.Path) field.ErrorList {
		return validateSliceEndpoint(e, s.AddressType, at)
	})
}

func validateSlicePort(p *discoveryv1.EndpointPort, at *field.Path) field.ErrorList {
	errs := validate.OneOfPtr(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	if name := ptr.Deref(p.Name, ""); name != "" {
		errs = append(errs, validate.FromMessages(name, at.Child("name"), validation.IsDNS1123Label(name))...)
	}
	if p.AppProtocol != nil {
		errs = append(errs, validate.FromMessages(*p.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName(*p.AppProtocol))...)
	}
	return errs
}

func validateSliceEndpoint(e *discoveryv1.Endpoint, sort discoveryv1.AddressType, at *field.Path) field.ErrorList {
	addresses := at.Child("addresses")
	errs := validate.MaxItems(e.Addresses, addresses, endpointAddresses)
	if len(e.Addresses) == 0 {
		errs = append(errs, field.Required(addresses, ""))
	}
	for i, address := range e.Addresses {
		switch sort {
		case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
			errs = append(errs, validateSliceIP(address, sort, addresses, i)...)
		case discoveryv1.AddressTypeFQDN:
			errs = append(errs, validation.IsFullyQualifiedDomainName(addresses.Index(i), address)...)
		}
	}
	if e.NodeName != nil {
		errs = append(errs, validate.FromMessages(*e.NodeName, at.Child("nodeName"), validation.IsDNS1123Subdomain(*e.NodeName))...)
	}
	if e.Hostname != nil {
		errs = append(errs, validate.FromMessages(*e.Hostname, at.Child("hostname"), validation.IsDNS1123Label(*e.Hostname))...)
	}
	if e.Hints == nil {
		return errs
	}
	return append(errs, validateEndpointHints(e.Hints, at.Child("hints"))...)
}

// validateSliceIP checks an address of a family. A wrong family is reported for the list of addresses. IPv6 addresses
// must have their canonical spelling.
func validateSliceIP(ip string, family discoveryv1.AddressType, addresses *field.Path, i int) field.ErrorList {
	check := validate.IP
	if family == discoveryv1.AddressTypeIPv6 {
		check = func(ip string, at *field.Path) field.ErrorList { return validation.IsValidIP(at, ip) }
	}
	if errs := check(ip, addresses.Index(i)); len(errs) > 0 {
		return errs
	}
	errs := validate.Reachable(ip, addresses.Index(i))
	if netutils.IsIPv6String(ip) != (family == discoveryv1.AddressTypeIPv6) {
		errs = append(errs, field.Invalid(addresses, ip, fmt.Sprintf("must be an %s address", family)))
	}
	return errs
}

// validateEndpointHints checks the hints of an endpoint. It does not check the elements of a list that is too long.
func validateEndpointHints(h *discoveryv1.EndpointHints, at *field.Path) field.ErrorList {
	zones, nodes := at.Child("forZones"), at.Child("forNodes")
	if errs := validate.MaxItems(h.ForZones, zones, endpointHints); len(errs) > 0 {
		return errs
	}
	var errs field.ErrorList
	for i, z := range h.ForZones {
		errs = append(errs, validateEndpointHint(h.ForZones[:i], z, zones.Index(i), z.Name, validation.IsValidLabelValue(z.Name))...)
	}
	if tooMany := validate.MaxItems(h.ForNodes, nodes, endpointHints); len(tooMany) > 0 {
		return append(errs, tooMany...)
	}
	for i, n := range h.ForNodes {
		errs = append(errs, validateEndpointHint(h.ForNodes[:i], n, nodes.Index(i), n.Name, validation.IsDNS1123Subdomain(n.Name))...)
	}
	return errs
}

func validateEndpointHint[T comparable](before []T, hint T, at *field.Path, name string, complaints []string) field.ErrorList {
	errs := validate.FromMessages(name, at.Child("name"), complaints)
	if slices.Contains(before, hint) {
		errs = append(errs, field.Duplicate(at.Child("name"), name))
	}
	return errs
}

// warnOfEndpointSlice warns about new slices with the address type FQDN, and about addresses, unless a controller wrote them,
// which reads no warnings.
func warnOfEndpointSlice(s, old *discoveryv1.EndpointSlice) []string {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		if old != nil {
			return nil
		}
		return []string{"spec.addressType: FQDN endpoints are deprecated"}
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return nil
	}
	var all []string
	for i, endpoint := range s.Endpoints {
		all = append(all, validate.WarnOfIPs(field.NewPath("endpoints").Index(i).Child("addresses"), endpoint.Addresses...)...)
	}
	return all
}
