package registry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// services get an address and node ports as their type wants (core_services_allocation.go),
// because clients read them, though nothing here routes traffic.
func services() Kind {
	return define[corev1.Service, corev1.ServiceList](Kind{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Service",
		Resource:            "services",
		Why:                 "Owned by most operators' objects, owner of endpoint slices, and part of what a namespace's deletion removes.",
		Namespaced:          true,
		ShortNames:          []string{"svc"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNS1035Label,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
		AnswersWithObject:   true,
	}, serviceColumns(), behaviour[*corev1.Service]{
		allocate:       allocateService,
		unique:         serviceValues,
		defaults:       defaultService,
		validate:       validateService,
		validateUpdate: validateServiceUpdate,
		status:         part(func(s *corev1.Service) *corev1.ServiceStatus { return &s.Status }),
		selectable: func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
	})
}

func serviceColumns() []column {
	return append([]column{
		text("Type", "How the service is reached.", func(s *corev1.Service) string { return string(s.Spec.Type) }),
		text("Cluster-IP", "Address within the cluster.", func(s *corev1.Service) string { return orNone(s.Spec.ClusterIP) }),
		text("External-IP", "Addresses outside of the cluster.", serviceExternal),
		text("Port(s)", "Ports, and the node ports that lead to them.", servicePorts),
		ageColumn(),
	}, wide(
		text("Selector", "Labels of the pods behind the service.", func(s *corev1.Service) string { return labelsText(s.Spec.Selector) }),
	)...)
}

func serviceExternal(s *corev1.Service) string {
	addresses := slices.Clone(s.Spec.ExternalIPs)
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			addresses = append(addresses, ingress.IP+ingress.Hostname)
		}
		if len(addresses) == 0 {
			return "<pending>"
		}
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
	}
	return orNone(strings.Join(addresses, ","))
}

func servicePorts(s *corev1.Service) string {
	return orNone(joined(s.Spec.Ports, func(p corev1.ServicePort) string {
		if p.NodePort != 0 {
			return fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}))
}

func defaultService(s *corev1.Service) {
	const threeHours = 3 * 60 * 60
	setDefault(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	setDefault(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	switch s.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		s.Spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		setDefaultPtr(&s.Spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		setDefaultPtr(&s.Spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		setDefaultPtr(&s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, int32(threeHours))
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		setDefault(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		setDefaultPtr(&s.Spec.AllocateLoadBalancerNodePorts, true)
		fallthrough
	case corev1.ServiceTypeNodePort:
		setDefault(&s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
		fallthrough
	case corev1.ServiceTypeClusterIP:
		setDefaultPtr(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	case corev1.ServiceTypeExternalName:
	}
}

func validateService(s *corev1.Service) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		oneOf(s.Spec.Type, spec.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
			corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort),
		metav1validation.ValidateLabels(s.Spec.Selector, spec.Child("selector")),
		validateServicePorts(s.Spec.Ports, spec.Child("ports")),
		validateServiceAddress(s, spec),
		validateAffinityOfClients(s, spec),
		validateServiceTraffic(s, spec),
		validateBalancer(s, spec),
		each(s.Spec.ExternalIPs, spec.Child("externalIPs"), func(ip *string, at *field.Path) field.ErrorList {
			return validateReachable(*ip, at)
		}),
	)
}

// validateServiceAddress checks by which address a service is reached within the cluster.
func validateServiceAddress(s *corev1.Service, spec *field.Path) field.ErrorList {
	errs := optionalIP(s.Spec.ClusterIP, spec.Child("clusterIP"))
	if len(s.Spec.ClusterIPs) > 0 && s.Spec.ClusterIPs[0] != s.Spec.ClusterIP {
		errs = append(errs, field.Invalid(spec.Child("clusterIPs"), s.Spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	for i, family := range s.Spec.IPFamilies {
		errs = append(errs, oneOf(family, spec.Child("ipFamilies").Index(i), corev1.IPv4Protocol, corev1.IPv6Protocol)...)
	}
	errs = append(errs, oneOfPtr(s.Spec.IPFamilyPolicy, spec.Child("ipFamilyPolicy"),
		corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		errs = append(errs, externalName(s.Spec.ExternalName, spec.Child("externalName"))...)
		if s.Spec.ClusterIP != "" || len(s.Spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(spec.Child("clusterIPs"), "may not be set when `type` is 'ExternalName'"))
		}
	case headless && s.Spec.Type != corev1.ServiceTypeClusterIP:
		errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(0), s.Spec.ClusterIP, fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
	case !headless && len(s.Spec.Ports) == 0:
		errs = append(errs, field.Required(spec.Child("ports"), ""))
	}
	return errs
}

// maxAffinitySeconds is how long a client may be kept at the pod that it has reached: a day.
const maxAffinitySeconds = 24 * 60 * 60

func validateAffinityOfClients(s *corev1.Service, spec *field.Path) field.ErrorList {
	errs := oneOf(s.Spec.SessionAffinity, spec.Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	config := s.Spec.SessionAffinityConfig
	switch {
	case s.Spec.SessionAffinity != corev1.ServiceAffinityClientIP:
		if config != nil {
			errs = append(errs, field.Forbidden(spec.Child("sessionAffinityConfig"), "must not be set when session affinity is None"))
		}
	case config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil:
		if seconds := *config.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > maxAffinitySeconds {
			errs = append(errs, field.Invalid(spec.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), seconds,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
		}
	}
	return errs
}

// validateServiceTraffic checks to which of its pods traffic goes.
func validateServiceTraffic(s *corev1.Service, spec *field.Path) field.ErrorList {
	errs := oneOfPtr(s.Spec.InternalTrafficPolicy, spec.Child("internalTrafficPolicy"),
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	errs = append(errs, oneOfPtr(s.Spec.TrafficDistribution, spec.Child("trafficDistribution"),
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferSameZone)...)
	exposed := s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer ||
		s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
	switch policy := spec.Child("externalTrafficPolicy"); {
	case s.Spec.ExternalTrafficPolicy == "":
	case !exposed:
		errs = append(errs, field.Invalid(policy, s.Spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	default:
		errs = append(errs, oneOf(s.Spec.ExternalTrafficPolicy, policy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	if s.Spec.HealthCheckNodePort != 0 && !needsHealthCheck(s) {
		errs = append(errs, field.Invalid(spec.Child("healthCheckNodePort"), s.Spec.HealthCheckNodePort,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP || s.Spec.Type == corev1.ServiceTypeExternalName {
		for i, port := range s.Spec.Ports {
			if port.NodePort != 0 {
				errs = append(errs, field.Forbidden(spec.Child("ports").Index(i).Child("nodePort"), fmt.Sprintf("may not be used when `type` is '%s'", s.Spec.Type)))
			}
		}
	}
	return errs
}

// validateBalancer checks what is asked of a load balancer.
func validateBalancer(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	const only = "may only be used when `type` is 'LoadBalancer'"
	if !balanced && len(s.Spec.LoadBalancerSourceRanges) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("loadBalancerSourceRanges"), only))
	}
	errs = append(errs, each(s.Spec.LoadBalancerSourceRanges, spec.Child("loadBalancerSourceRanges"), func(cidr *string, at *field.Path) field.ErrorList {
		return validation.IsValidCIDR(at, *cidr)
	})...)
	if !balanced && s.Spec.AllocateLoadBalancerNodePorts != nil {
		errs = append(errs, field.Forbidden(spec.Child("allocateLoadBalancerNodePorts"), only))
	}
	if class := s.Spec.LoadBalancerClass; class != nil {
		if !balanced {
			errs = append(errs, field.Forbidden(spec.Child("loadBalancerClass"), only))
		}
		errs = append(errs, wellFormed(*class, spec.Child("loadBalancerClass"), validation.IsQualifiedName(*class))...)
	}
	return errs
}

// validateReachable checks an address that traffic from elsewhere could come to.
func validateReachable(ip string, at *field.Path) field.ErrorList {
	errs := validation.IsValidIP(at, ip)
	address, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
	case address.IsUnspecified():
		errs = append(errs, field.Invalid(at, ip, "may not be unspecified (0.0.0.0 or ::)"))
	case address.IsLoopback():
		errs = append(errs, field.Invalid(at, ip, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	case address.IsLinkLocalUnicast():
		errs = append(errs, field.Invalid(at, ip, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	case address.IsLinkLocalMulticast():
		errs = append(errs, field.Invalid(at, ip, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}

func optionalIP(ip string, path *field.Path) field.ErrorList {
	if ip == "" || ip == corev1.ClusterIPNone {
		return nil
	}
	return validation.IsValidIP(path, ip)
}

func externalName(name string, path *field.Path) field.ErrorList {
	name = strings.TrimSuffix(name, ".")
	if name == "" {
		return required(name, path)
	}
	return wellFormed(name, path, validation.IsDNS1123Subdomain(name))
}

func validateServicePorts(ports []corev1.ServicePort, path *field.Path) field.ErrorList {
	errs := unique(ports, path, func(p corev1.ServicePort) string { return p.Name }, "name")
	type address struct {
		port     int32
		protocol corev1.Protocol
	}
	seen := map[address]bool{}
	for i, port := range ports {
		at := path.Index(i)
		switch {
		case port.Name != "":
			errs = append(errs, wellFormed(port.Name, at.Child("name"), validation.IsDNS1123Label(port.Name))...)
		case len(ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if a := (address{port.Port, port.Protocol}); seen[a] {
			errs = append(errs, field.Duplicate(at, map[string]any{"port": a.port, "protocol": a.protocol}))
		} else {
			seen[a] = true
		}
		errs = append(errs, validPort(port.Port, at.Child("port"))...)
		errs = append(errs, validProtocol(port.Protocol, at.Child("protocol"))...)
		errs = append(errs, validTargetPort(port.TargetPort, at.Child("targetPort"))...)
		if port.AppProtocol != nil {
			errs = append(errs, wellFormed(*port.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName(*port.AppProtocol))...)
		}
	}
	return append(errs, validateNodePorts(ports, path)...)
}

// validateNodePorts: one port of the nodes leads to one port of the service, for each protocol.
func validateNodePorts(ports []corev1.ServicePort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type nodePort struct {
		port     int32
		protocol corev1.Protocol
	}
	seen := map[nodePort]bool{}
	for i, port := range ports {
		if port.NodePort == 0 {
			continue
		}
		n := nodePort{port.NodePort, port.Protocol}
		if seen[n] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("nodePort"), port.NodePort))
		}
		seen[n] = true
	}
	return errs
}

func validTargetPort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.Int {
		return validPort(port.IntVal, path)
	}
	return wellFormed(port.StrVal, path, validation.IsValidPortName(port.StrVal))
}

// validateServiceUpdate: clients hold on to the address of a service.
func validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	if old.Spec.ClusterIP == "" || old.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	return immutable(s.Spec.ClusterIP, old.Spec.ClusterIP, field.NewPath("spec", "clusterIPs").Index(0))
}

func endpoints() Kind {
	return define[corev1.Endpoints, corev1.EndpointsList](Kind{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Endpoints",
		Resource:            "endpoints",
		Why:                 "Still made by older controllers beside services; listed by collectors that must be able to remove it.",
		Namespaced:          true,
		ShortNames:          []string{"ep"},
		Name:                apivalidation.NameIsDNSSubdomain,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}, []column{
		text("Endpoints", "Addresses that are ready.", endpointsText),
		ageColumn(),
	}, behaviour[*corev1.Endpoints]{
		defaults: func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					setDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		},
		validate: func(e *corev1.Endpoints) field.ErrorList {
			return each(e.Subsets, field.NewPath("subsets"), validateSubset)
		},
	})
}

func validateSubset(s *corev1.EndpointSubset, path *field.Path) field.ErrorList {
	address := func(a *corev1.EndpointAddress, at *field.Path) field.ErrorList {
		errs := validateReachable(a.IP, at.Child("ip"))
		errs = append(errs, optionalLabel(a.Hostname, at.Child("hostname"))...)
		return append(errs, optionalSubdomain(deref(a.NodeName, ""), at.Child("nodeName"))...)
	}
	errs := slices.Concat(
		each(s.Addresses, path.Child("addresses"), address),
		each(s.NotReadyAddresses, path.Child("notReadyAddresses"), address),
		each(s.Ports, path.Child("ports"), func(p *corev1.EndpointPort, at *field.Path) field.ErrorList {
			errs := append(validPort(p.Port, at.Child("port")), validProtocol(p.Protocol, at.Child("protocol"))...)
			if p.Name == "" && len(s.Ports) > 1 {
				return append(errs, field.Required(at.Child("name"), ""))
			}
			return append(errs, optionalLabel(p.Name, at.Child("name"))...)
		}),
	)
	if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
		errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
	}
	return errs
}

// endpointsText shows the first few addresses, and how many more there are.
func endpointsText(e *corev1.Endpoints) string {
	const shown = 3
	var all []string
	for _, subset := range e.Subsets {
		for _, address := range subset.Addresses {
			if len(subset.Ports) == 0 {
				all = append(all, address.IP)
			}
			for _, port := range subset.Ports {
				all = append(all, fmt.Sprintf("%s:%d", address.IP, port.Port))
			}
		}
	}
	if len(all) > shown {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:shown], ","), len(all)-shown)
	}
	return orNone(strings.Join(all, ","))
}
