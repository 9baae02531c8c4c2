package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// services get an address and node ports as their type requires (services_allocation.go). Clients read them, although
// nothing here routes traffic.
func services(ranges ServiceRanges) registry.Resource {
	return registry.Define[corev1.Service, corev1.ServiceList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Service",
		Plural:              "services",
		Namespaced:          true,
		ShortNames:          []string{"svc"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSLabel,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, serviceColumns(), registry.Strategy[*corev1.Service]{
		Warn:         warnOfService,
		WarnOfStatus: warnOfServiceStatus,
		Allocate: func(a *allocation.Allocation, s, old *corev1.Service) (field.ErrorList, error) {
			return serviceAllocation{a, ranges}.allocate(s, old)
		},
		Unique:  serviceValues,
		Default: defaultService,
		// External names have no endpoints in the cluster.
		Canonicalize: func(s *corev1.Service) {
			if s.Spec.Type == corev1.ServiceTypeExternalName {
				s.Spec.InternalTrafficPolicy = nil
			}
		},
		PrepareForUpdate: prepareServiceUpdate,
		Validate:         validateService,
		ValidateIn: func(_ schema.GroupVersion, s, old *corev1.Service) field.ErrorList {
			return validateServiceAddress(s, old, field.NewPath("spec"))
		},
		ValidateUpdate: validateServiceUpdate,
		CopyStatus:     registry.CopyField(func(s *corev1.Service) *corev1.ServiceStatus { return &s.Status }),
		ValidateStatusUpdate: func(s, _ *corev1.Service) field.ErrorList {
			return validateServiceStatus(s, field.NewPath("status", "loadBalancer", "ingress"))
		},
		SelectableFields: func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
	})
}

func serviceColumns() []table.Column {
	return append([]table.Column{
		table.Text("Type", "How the service is reached.", func(s *corev1.Service) string { return string(s.Spec.Type) }),
		table.Text("Cluster-IP", "Address within the cluster.", func(s *corev1.Service) string { return table.OrNone(s.Spec.ClusterIP) }),
		table.Text("External-IP", "Addresses outside of the cluster.", serviceExternal),
		table.Text("Port(s)", "Ports, and the node ports that lead to them.", servicePorts),
		table.Age(),
	}, table.Wide(
		table.Text("Selector", "Labels of the pods behind the service.", func(s *corev1.Service) string { return table.Labels(s.Spec.Selector) }),
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
	return table.OrNone(strings.Join(addresses, ","))
}

func servicePorts(s *corev1.Service) string {
	return table.OrNone(table.Join(s.Spec.Ports, func(p corev1.ServicePort) string {
		if p.NodePort != 0 {
			return fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
		return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}))
}

func defaultService(s *corev1.Service) {
	const threeHours = 3 * 60 * 60
	registry.SetDefault(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	registry.SetDefault(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	switch s.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		s.Spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		registry.SetDefaultPtr(&s.Spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		registry.SetDefaultPtr(&s.Spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		registry.SetDefaultPtr(&s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, int32(threeHours))
	}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		registry.SetDefault(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		registry.SetDefaultPtr(&s.Spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if l := &s.Status.LoadBalancer.Ingress[i]; l.IP != "" {
				registry.SetDefaultPtr(&l.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
		fallthrough
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP:
		registry.SetDefaultPtr(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	case corev1.ServiceTypeExternalName:
	}
	if isExposed(s) {
		registry.SetDefault(&s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
}

func validateService(s *corev1.Service) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		validate.OneOf(s.Spec.Type, spec.Child("type"), corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
			corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort),
		metav1validation.ValidateLabels(s.Spec.Selector, spec.Child("selector")),
		validateServicePorts(s.Spec.Ports, spec.Child("ports")),
		validateSessionAffinity(s, spec),
		validateServiceTraffic(s, spec),
		validateServiceAnnotations(s),
		validateLoadBalancer(s, spec),
		validate.Each(s.Spec.ExternalIPs, spec.Child("externalIPs"), func(ip *string, at *field.Path) field.ErrorList {
			if errs := validate.IP(*ip, at); len(errs) > 0 {
				return errs
			}
			return validate.Reachable(*ip, at)
		}),
	)
}

// validateServiceAddress checks the address of a service within the cluster.
func validateServiceAddress(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	errs := validateClusterIPs(s, old, spec)
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	const external = "may not be set for ExternalName services"
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		errs = append(errs, externalName(s.Spec.ExternalName, spec.Child("externalName"))...)
		if len(s.Spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(spec.Child("clusterIPs"), external))
		}
		if len(s.Spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(spec.Child("ipFamilies"), external))
		}
		if s.Spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(spec.Child("ipFamilyPolicy"), external))
		}
	case headless && (s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer):
		errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(0), s.Spec.ClusterIP, fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
	case !headless && len(s.Spec.Ports) == 0:
		errs = append(errs, field.Required(spec.Child("ports"), ""))
	}
	return errs
}

// maxAffinitySeconds is the maximum timeout of session affinity: a day.
const maxAffinitySeconds = 24 * 60 * 60

func validateSessionAffinity(s *corev1.Service, spec *field.Path) field.ErrorList {
	errs := validate.OneOf(s.Spec.SessionAffinity, spec.Child("sessionAffinity"), corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	config := s.Spec.SessionAffinityConfig
	switch {
	case s.Spec.SessionAffinity == corev1.ServiceAffinityNone:
		if config != nil {
			errs = append(errs, field.Forbidden(spec.Child("sessionAffinityConfig"), "must not be set when session affinity is None"))
		}
	case s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil:
		if seconds := *config.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > maxAffinitySeconds {
			errs = append(errs, field.Invalid(spec.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), seconds,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
		}
	}
	return errs
}

// validateServiceTraffic checks the traffic policies.
func validateServiceTraffic(s *corev1.Service, spec *field.Path) field.ErrorList {
	errs := validate.OneOfPtr(s.Spec.InternalTrafficPolicy, spec.Child("internalTrafficPolicy"),
		corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	errs = append(errs, validate.OneOfPtr(s.Spec.TrafficDistribution, spec.Child("trafficDistribution"),
		corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferSameZone)...)
	switch policy := spec.Child("externalTrafficPolicy"); {
	case s.Spec.ExternalTrafficPolicy == "":
	case !isExposed(s):
		errs = append(errs, field.Invalid(policy, s.Spec.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	default:
		errs = append(errs, validate.OneOf(s.Spec.ExternalTrafficPolicy, policy,
			corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	}
	switch port := s.Spec.HealthCheckNodePort; {
	case needsHealthCheck(s):
		errs = append(errs, validate.Port(port, spec.Child("healthCheckNodePort"))...)
	case port != 0:
		errs = append(errs, field.Invalid(spec.Child("healthCheckNodePort"), port,
			"may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		for i, port := range s.Spec.Ports {
			if port.NodePort != 0 {
				errs = append(errs, field.Forbidden(spec.Child("ports").Index(i).Child("nodePort"), fmt.Sprintf("may not be used when `type` is '%s'", s.Spec.Type)))
			}
		}
	}
	return errs
}

// isExposed reports whether clients outside of the cluster can reach a service.
func isExposed(s *corev1.Service) bool {
	return usesNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

func isBalanced(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }

const onlyBalanced = "may only be used when `type` is 'LoadBalancer'"

// validateServiceAnnotations checks annotations from before the fields with the same meaning existed.
func validateServiceAnnotations(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("metadata", "annotations")
	mode, hasMode := s.Annotations[corev1.AnnotationTopologyMode]
	if hints, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok && hasMode && hints != mode {
		errs = append(errs, field.Invalid(at.Key(corev1.AnnotationTopologyMode), mode,
			fmt.Sprintf("must match annotations[%s] when both are specified", corev1.DeprecatedAnnotationTopologyAwareHints)))
	}
	list, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]
	if !ok || len(s.Spec.LoadBalancerSourceRanges) > 0 {
		return errs
	}
	at = at.Key(corev1.AnnotationLoadBalancerSourceRangesKey)
	if !isBalanced(s) {
		errs = append(errs, field.Forbidden(at, onlyBalanced))
	}
	if strings.TrimSpace(list) == "" {
		return errs
	}
	for cidr := range strings.SplitSeq(list, ",") {
		errs = append(errs, validate.CIDR(strings.TrimSpace(cidr), at)...)
	}
	return errs
}

// validateLoadBalancer checks the fields of load balancers.
func validateLoadBalancer(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	ranges := spec.Child("LoadBalancerSourceRanges") // as upstream spells it
	if !isBalanced(s) && len(s.Spec.LoadBalancerSourceRanges) > 0 {
		errs = append(errs, field.Forbidden(ranges, onlyBalanced))
	}
	errs = append(errs, validate.Each(s.Spec.LoadBalancerSourceRanges, ranges, func(cidr *string, at *field.Path) field.ErrorList {
		return validate.CIDR(strings.TrimSpace(*cidr), at)
	})...)
	if !isBalanced(s) && s.Spec.AllocateLoadBalancerNodePorts != nil {
		errs = append(errs, field.Forbidden(spec.Child("allocateLoadBalancerNodePorts"), onlyBalanced))
	}
	switch class := s.Spec.LoadBalancerClass; {
	case class == nil:
	case !isBalanced(s):
		errs = append(errs, field.Forbidden(spec.Child("loadBalancerClass"), onlyBalanced))
	default:
		errs = append(errs, validate.FromMessages(*class, spec.Child("loadBalancerClass"), validation.IsQualifiedName(*class))...)
	}
	return errs
}

func externalName(name string, path *field.Path) field.ErrorList {
	name = strings.TrimSuffix(name, ".")
	if name == "" {
		return validate.Required(name, path)
	}
	return validate.FromMessages(name, path, validation.IsDNS1123Subdomain(name))
}

func validateServicePorts(ports []corev1.ServicePort, path *field.Path) field.ErrorList {
	errs := validate.NoDuplicates(ports, path, func(p corev1.ServicePort) string { return p.Name }, "name")
	type address struct {
		port     int32
		protocol corev1.Protocol
	}
	seen := map[address]bool{}
	for i, port := range ports {
		at := path.Index(i)
		switch {
		case port.Name != "":
			errs = append(errs, validate.FromMessages(port.Name, at.Child("name"), validation.IsDNS1123Label(port.Name))...)
		case len(ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if a := (address{port.Port, port.Protocol}); seen[a] {
			errs = append(errs, field.Duplicate(at, map[string]any{"port": a.port, "protocol": a.protocol}))
		} else {
			seen[a] = true
		}
		errs = append(errs, validate.Port(port.Port, at.Child("port"))...)
		errs = append(errs, validate.Protocol(port.Protocol, at.Child("protocol"))...)
		errs = append(errs, validate.TargetPort(port.TargetPort, at.Child("targetPort"))...)
		if port.AppProtocol != nil {
			errs = append(errs, validate.FromMessages(*port.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName(*port.AppProtocol))...)
		}
	}
	return append(errs, validateNodePorts(ports, path)...)
}

// validateNodePorts checks that for each protocol a node port leads to one port of the service.
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

// validateServiceStatus checks the addresses of the load balancer of a service.
func validateServiceStatus(s *corev1.Service, at *field.Path) field.ErrorList {
	addresses := s.Status.LoadBalancer.Ingress
	if !isBalanced(s) && len(addresses) > 0 {
		return field.ErrorList{field.Forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'")}
	}
	return validate.Each(addresses, at, func(l *corev1.LoadBalancerIngress, at *field.Path) field.ErrorList {
		errs := validate.LoadBalancerAddress(l.IP, l.Hostname, at)
		switch mode := at.Child("ipMode"); {
		case l.IPMode == nil && l.IP != "":
			errs = append(errs, field.Required(mode, "must be specified when `ip` is set"))
		case l.IPMode != nil && l.IP == "":
			errs = append(errs, field.Forbidden(mode, "may not be specified when `ip` is not set"))
		default:
			errs = append(errs, validate.OneOfPtr(l.IPMode, mode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)...)
		}
		return errs
	})
}
