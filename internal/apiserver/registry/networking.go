package registry

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func networkingKinds() []Kind { return []Kind{networkPolicies(), ingresses(), ingressClasses()} }

func networkPolicies() Kind {
	return define[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList](Kind{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "NetworkPolicy",
		Resource:            "networkpolicies",
		Why:                 "With RBAC, what is removed last when a namespace is deleted: its pods must not run unprotected.",
		Namespaced:          true,
		ShortNames:          []string{"netpol"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []column{
		text("Pod-Selector", "Pods that the policy is about.", func(p *networkingv1.NetworkPolicy) string { return selectorText(&p.Spec.PodSelector) }),
		ageColumn(),
	}, behaviour[*networkingv1.NetworkPolicy]{
		defaults: defaultNetworkPolicy,
		validate: validateNetworkPolicy,
		desired:  func(p *networkingv1.NetworkPolicy) any { return p.Spec },
	})
}

// defaultNetworkPolicy: a policy is about traffic to pods, and about traffic from
// them if it has rules for that.
func defaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	for i := range p.Spec.Ingress {
		defaultPolicyPorts(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		defaultPolicyPorts(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPolicyPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		setDefaultPtr(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		validLabelSelector(&p.Spec.PodSelector, spec.Child("podSelector")),
		each(p.Spec.Ingress, spec.Child("ingress"), func(r *networkingv1.NetworkPolicyIngressRule, at *field.Path) field.ErrorList {
			return append(each(r.Ports, at.Child("ports"), validatePolicyPort), each(r.From, at.Child("from"), validatePolicyPeer)...)
		}),
		each(p.Spec.Egress, spec.Child("egress"), func(r *networkingv1.NetworkPolicyEgressRule, at *field.Path) field.ErrorList {
			return append(each(r.Ports, at.Child("ports"), validatePolicyPort), each(r.To, at.Child("to"), validatePolicyPeer)...)
		}),
		each(p.Spec.PolicyTypes, spec.Child("policyTypes"), func(t *networkingv1.PolicyType, at *field.Path) field.ErrorList {
			return oneOf(*t, at, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
		}),
	)
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	errs := oneOfPtr(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	if p.Port != nil {
		errs = append(errs, validTargetPort(*p.Port, at.Child("port"))...)
	}
	if p.EndPort == nil {
		return errs
	}
	switch end := at.Child("endPort"); {
	case p.Port == nil:
		errs = append(errs, field.Required(end, "may not be specified when `port` is not specified"))
	case p.Port.Type == intstr.String:
		errs = append(errs, field.Required(end, "may not be specified when `port` is non-numeric"))
	case *p.EndPort < p.Port.IntVal:
		errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
	default:
		errs = append(errs, validPort(*p.EndPort, end)...)
	}
	return errs
}

func validatePolicyPeer(p *networkingv1.NetworkPolicyPeer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, validLabelSelector(p.PodSelector, at.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, validLabelSelector(p.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock != nil && selects:
		errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
	case p.IPBlock != nil:
		errs = append(errs, validateIPBlock(p.IPBlock, at.Child("ipBlock"))...)
	case !selects:
		errs = append(errs, field.Required(at, "must specify a peer"))
	}
	return errs
}

// validateIPBlock checks a range of addresses, and that what is excepted is in it.
func validateIPBlock(b *networkingv1.IPBlock, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return required(b.CIDR, at.Child("cidr"))
	}
	if errs := validation.IsValidCIDR(at.Child("cidr"), b.CIDR); len(errs) > 0 {
		return errs
	}
	whole, _ := netip.ParsePrefix(b.CIDR)
	return each(b.Except, at.Child("except"), func(cidr *string, at *field.Path) field.ErrorList {
		if errs := validation.IsValidCIDR(at, *cidr); len(errs) > 0 {
			return errs
		}
		except, _ := netip.ParsePrefix(*cidr)
		if !whole.Contains(except.Addr()) || except.Bits() <= whole.Bits() {
			return field.ErrorList{field.Invalid(at, *cidr, "must be a strict subset of `cidr`")}
		}
		return nil
	})
}

func ingresses() Kind {
	return define[networkingv1.Ingress, networkingv1.IngressList](Kind{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "Ingress",
		Resource:            "ingresses",
		Why:                 "Owned by operators' objects, and often held by a finalizer of a cloud's controller.",
		Namespaced:          true,
		ShortNames:          []string{"ing"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []column{
		text("Class", "Who serves it.", func(i *networkingv1.Ingress) string { return deref(i.Spec.IngressClassName, none) }),
		text("Hosts", "Names that it is reached by.", ingressHosts),
		text("Address", "Addresses that it is reached at.", func(i *networkingv1.Ingress) string {
			return joined(i.Status.LoadBalancer.Ingress, func(a networkingv1.IngressLoadBalancerIngress) string { return cmp.Or(a.IP, a.Hostname) })
		}),
		text("Ports", "Ports that it is reached at.", func(i *networkingv1.Ingress) string {
			if len(i.Spec.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}),
		ageColumn(),
	}, behaviour[*networkingv1.Ingress]{
		resolve:  defaultIngressClass,
		validate: validateIngress,
		desired:  func(i *networkingv1.Ingress) any { return i.Spec },
		status:   part(func(i *networkingv1.Ingress) *networkingv1.IngressStatus { return &i.Status }),
	})
}

func ingressHosts(i *networkingv1.Ingress) string {
	const shown = 3
	var hosts []string
	for _, rule := range i.Spec.Rules {
		if len(hosts) == shown {
			hosts = append(hosts, "...")
			break
		}
		hosts = append(hosts, cmp.Or(rule.Host, "*"))
	}
	if len(hosts) == 0 {
		return "*"
	}
	return strings.Join(hosts, ",")
}

func validateIngress(i *networkingv1.Ingress) field.ErrorList {
	spec := field.NewPath("spec")
	errs := each(i.Spec.Rules, spec.Child("rules"), validateIngressRule)
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, validateIngressBackend(i.Spec.DefaultBackend, spec.Child("defaultBackend"))...)
	} else if len(i.Spec.Rules) == 0 {
		errs = append(errs, field.Invalid(spec, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	errs = append(errs, each(i.Spec.TLS, spec.Child("tls"), func(t *networkingv1.IngressTLS, at *field.Path) field.ErrorList {
		return append(each(t.Hosts, at.Child("hosts"), validateIngressHost), optionalSubdomain(t.SecretName, at.Child("secretName"))...)
	})...)
	if class := i.Spec.IngressClassName; class != nil {
		errs = append(errs, wellFormed(*class, spec.Child("ingressClassName"), validation.IsDNS1123Subdomain(*class))...)
	}
	return errs
}

func validateIngressRule(r *networkingv1.IngressRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	host := at.Child("host")
	switch {
	case r.Host == "":
	case net.ParseIP(r.Host) != nil:
		errs = append(errs, field.Invalid(host, r.Host, "must be a DNS name, not an IP address"))
	default:
		errs = append(errs, validateIngressHost(&r.Host, host)...)
	}
	if r.HTTP == nil {
		return errs
	}
	paths := at.Child("http", "paths")
	if len(r.HTTP.Paths) == 0 {
		return append(errs, field.Required(paths, ""))
	}
	return append(errs, each(r.HTTP.Paths, paths, validateIngressPath)...)
}

func validateIngressHost(host *string, at *field.Path) field.ErrorList {
	if strings.Contains(*host, "*") {
		return wellFormed(*host, at, validation.IsWildcardDNS1123Subdomain(*host))
	}
	return wellFormed(*host, at, validation.IsDNS1123Subdomain(*host))
}

// ambiguousPaths are what proxies read in different ways.
func ambiguousPaths() (within, atEnd []string) {
	return []string{"//", "/./", "/../", "%2f", "%2F"}, []string{"/..", "/."}
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	errs := validateIngressBackend(&p.Backend, at.Child("backend"))
	if p.PathType == nil {
		return append(errs, field.Required(at.Child("pathType"), "pathType must be specified"))
	}
	errs = append(errs, oneOfPtr(p.PathType, at.Child("pathType"),
		networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific)...)
	mayBeEmpty := *p.PathType == networkingv1.PathTypeImplementationSpecific
	if !strings.HasPrefix(p.Path, "/") && (p.Path != "" || !mayBeEmpty) {
		errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
	}
	if mayBeEmpty {
		return errs
	}
	within, atEnd := ambiguousPaths()
	for _, sequence := range within {
		if strings.Contains(p.Path, sequence) {
			errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("must not contain '%s'", sequence)))
		}
	}
	for _, suffix := range atEnd {
		if strings.HasSuffix(p.Path, suffix) {
			errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("cannot end with '%s'", suffix)))
		}
	}
	return errs
}

func validateIngressBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return append(required(b.Resource.Kind, at.Child("resource", "kind")), required(b.Resource.Name, at.Child("resource", "name"))...)
	case b.Service == nil:
		return field.ErrorList{field.Required(at, "")}
	}
	service := at.Child("service")
	errs := required(b.Service.Name, service.Child("name"))
	if b.Service.Name != "" {
		errs = append(errs, wellFormed(b.Service.Name, service.Child("name"), apivalidation.NameIsDNS1035Label(b.Service.Name, false))...)
	}
	switch port := b.Service.Port; {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(service, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, wellFormed(port.Name, service.Child("port", "name"), validation.IsDNS1123Label(port.Name))...)
	case port.Number != 0:
		errs = append(errs, validPort(port.Number, service.Child("port", "number"))...)
	default:
		errs = append(errs, field.Required(service, "port name or number is required"))
	}
	return errs
}
