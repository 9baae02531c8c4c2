package networking

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func networkPolicies() registry.Resource {
	return registry.Define[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList](registry.Resource{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "NetworkPolicy",
		Plural:              "networkpolicies",
		Namespaced:          true,
		ShortNames:          []string{"netpol"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ExactGeneration:     true,
	}, []table.Column{
		table.Text("Pod-Selector", "Pods that the policy applies to.", func(p *networkingv1.NetworkPolicy) string { return table.Selector(&p.Spec.PodSelector) }),
		table.Age(),
	}, registry.Strategy[*networkingv1.NetworkPolicy]{
		Warn:     warnOfPolicy,
		Default:  defaultNetworkPolicy,
		Validate: validateNetworkPolicy,
		Desired:  func(p *networkingv1.NetworkPolicy) any { return p.Spec },
	})
}

// warnOfPolicy warns of ranges of addresses.
func warnOfPolicy(p, _ *networkingv1.NetworkPolicy) []string {
	var all []string
	blocks := func(peers []networkingv1.NetworkPolicyPeer, at *field.Path) {
		for i, peer := range peers {
			if at := at.Index(i).Child("ipBlock"); peer.IPBlock != nil {
				all = append(all, validation.GetWarningsForCIDR(at.Child("cidr"), peer.IPBlock.CIDR)...)
				all = append(all, validate.WarnOfCIDRs(at.Child("except"), peer.IPBlock.Except...)...)
			}
		}
	}
	for i, rule := range p.Spec.Ingress {
		blocks(rule.From, field.NewPath("spec", "ingress").Index(i).Child("from"))
	}
	for i, rule := range p.Spec.Egress {
		blocks(rule.To, field.NewPath("spec", "egress").Index(i).Child("to"))
	}
	return all
}

// defaultNetworkPolicy sets the policy types: ingress always, egress if there are rules
// for it.
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
		registry.SetDefaultPtr(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}

func validateNetworkPolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		validate.LabelSelector(&p.Spec.PodSelector, spec.Child("podSelector")),
		validate.Each(p.Spec.Ingress, spec.Child("ingress"), func(r *networkingv1.NetworkPolicyIngressRule, at *field.Path) field.ErrorList {
			return append(validate.Each(r.Ports, at.Child("ports"), validatePolicyPort), validate.Each(r.From, at.Child("from"), validatePolicyPeer)...)
		}),
		validate.Each(p.Spec.Egress, spec.Child("egress"), func(r *networkingv1.NetworkPolicyEgressRule, at *field.Path) field.ErrorList {
			return append(validate.Each(r.Ports, at.Child("ports"), validatePolicyPort), validate.Each(r.To, at.Child("to"), validatePolicyPeer)...)
		}),
		validatePolicyTypes(p.Spec.PolicyTypes, spec.Child("policyTypes")),
	)
}

func validatePolicyTypes(types []networkingv1.PolicyType, at *field.Path) field.ErrorList {
	known := []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress}
	if len(types) > len(known) {
		return field.ErrorList{field.Invalid(at, &types, "may not specify more than two policyTypes")}
	}
	return validate.Each(types, at, func(t *networkingv1.PolicyType, at *field.Path) field.ErrorList {
		return validate.OneOfPtr(t, at, known...)
	})
}

func validatePolicyPort(p *networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	errs := validate.OneOfPtr(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
	if p.Port != nil {
		errs = append(errs, validate.TargetPort(*p.Port, at.Child("port"))...)
	}
	if p.EndPort == nil {
		return errs
	}
	switch end := at.Child("endPort"); {
	case p.Port == nil:
		errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
	case p.Port.Type == intstr.String:
		errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
	default:
		if *p.EndPort < p.Port.IntVal {
			errs = append(errs, field.Invalid(end, *p.EndPort, "must be greater than or equal to `port`"))
		}
		errs = append(errs, validate.Port(*p.EndPort, end)...)
	}
	return errs
}

func validatePolicyPeer(p *networkingv1.NetworkPolicyPeer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, validate.LabelSelector(p.PodSelector, at.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, validate.LabelSelector(p.NamespaceSelector, at.Child("namespaceSelector"))...)
	}
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	switch {
	case p.IPBlock != nil:
		errs = append(errs, validateIPBlock(p.IPBlock, at.Child("ipBlock"))...)
		if selects {
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		}
	case !selects:
		errs = append(errs, field.Required(at, "must specify a peer"))
	}
	return errs
}

// validateIPBlock checks a CIDR, and that its exceptions lie within it.
func validateIPBlock(b *networkingv1.IPBlock, at *field.Path) field.ErrorList {
	if b.CIDR == "" {
		return validate.Required(b.CIDR, at.Child("cidr"))
	}
	errs := validate.CIDR(b.CIDR, at.Child("cidr"))
	_, whole, err := netutils.ParseCIDRSloppy(b.CIDR)
	if err != nil {
		return errs
	}
	return append(errs, validate.Each(b.Except, at.Child("except"), func(cidr *string, at *field.Path) field.ErrorList {
		errs := validate.CIDR(*cidr, at)
		_, except, err := netutils.ParseCIDRSloppy(*cidr)
		if err != nil {
			return errs
		}
		bits, _ := whole.Mask.Size()
		if of, _ := except.Mask.Size(); !whole.Contains(except.IP) || of <= bits {
			errs = append(errs, field.Invalid(at, *cidr, "must be a strict subset of `cidr`"))
		}
		return errs
	})...)
}
