package networking

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func ingresses() registry.Resource {
	return registry.Define[networkingv1.Ingress, networkingv1.IngressList](registry.Resource{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "Ingress",
		Plural:              "ingresses",
		Namespaced:          true,
		ShortNames:          []string{"ing"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Class", "Ingress class.", func(i *networkingv1.Ingress) string { return ptr.Deref(i.Spec.IngressClassName, table.None) }),
		table.Text("Hosts", "Host names that are served.", ingressHosts),
		table.Text("Address", "Addresses of the load balancer.", func(i *networkingv1.Ingress) string {
			return table.Join(i.Status.LoadBalancer.Ingress, func(a networkingv1.IngressLoadBalancerIngress) string { return cmp.Or(a.IP, a.Hostname) })
		}),
		table.Text("Ports", "Ports that are served.", func(i *networkingv1.Ingress) string {
			if len(i.Spec.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}),
		table.Age(),
	}, registry.Strategy[*networkingv1.Ingress]{
		Warn:           warnOfIngress,
		WarnOfStatus:   warnOfIngressStatus,
		BeginCreate:    defaultIngressClass,
		Validate:       validateIngress,
		ValidateCreate: validateClassAnnotation,
		Desired:        func(i *networkingv1.Ingress) any { return i.Spec },
		CopyStatus:     registry.CopyField(func(i *networkingv1.Ingress) *networkingv1.IngressStatus { return &i.Status }),
		ValidateStatusUpdate: func(i, _ *networkingv1.Ingress) field.ErrorList {
			return validate.Each(i.Status.LoadBalancer.Ingress, field.NewPath("status", "loadBalancer", "ingress"),
				func(l *networkingv1.IngressLoadBalancerIngress, at *field.Path) field.ErrorList {
					return validate.LoadBalancerAddress(l.IP, l.Hostname, at)
				})
		},
	})
}

// warnOfIngress warns about the annotation that a field has replaced.
func warnOfIngress(i, old *networkingv1.Ingress) []string {
	const annotation = "kubernetes.io/ingress.class"
	if _, given := i.Annotations[annotation]; old != nil || !given || i.Spec.IngressClassName != nil {
		return nil
	}
	return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", annotation)}
}

// warnOfIngressStatus warns about the addresses of a load balancer.
func warnOfIngressStatus(i *networkingv1.Ingress) []string {
	var addresses []string
	for _, ingress := range i.Status.LoadBalancer.Ingress {
		addresses = append(addresses, ingress.IP)
	}
	return validate.WarnOfIPs(field.NewPath("status", "loadBalancer", "ingress"), addresses...)
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
	errs := validate.Each(i.Spec.Rules, spec.Child("rules"), validateIngressRule)
	if i.Spec.DefaultBackend != nil {
		errs = append(errs, validateIngressBackend(i.Spec.DefaultBackend, spec.Child("defaultBackend"))...)
	} else if len(i.Spec.Rules) == 0 {
		errs = append(errs, field.Invalid(spec, i.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	errs = append(errs, validate.Each(i.Spec.TLS, spec.Child("tls"), func(t *networkingv1.IngressTLS, at *field.Path) field.ErrorList {
		return append(validate.Each(t.Hosts, at.Child("hosts"), validateIngressHost), validate.OptionalSubdomain(t.SecretName, at.Child("secretName"))...)
	})...)
	if class := i.Spec.IngressClassName; class != nil {
		errs = append(errs, validate.FromMessages(*class, spec.Child("ingressClassName"), validation.IsDNS1123Subdomain(*class))...)
	}
	return errs
}

// classAnnotation named the class of an ingress before there was a field.
const classAnnotation = "kubernetes.io/ingress.class"

func validateClassAnnotation(i *networkingv1.Ingress) field.ErrorList {
	class, ok := i.Annotations[classAnnotation]
	if !ok || i.Spec.IngressClassName == nil || class == *i.Spec.IngressClassName {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("annotations").Child(classAnnotation), class,
		"must match `ingressClassName` when both are specified")}
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
	return append(errs, validate.Each(r.HTTP.Paths, paths, validateIngressPath)...)
}

func validateIngressHost(host *string, at *field.Path) field.ErrorList {
	if strings.Contains(*host, "*") {
		return validate.FromMessages(*host, at, validation.IsWildcardDNS1123Subdomain(*host))
	}
	return validate.FromMessages(*host, at, validation.IsDNS1123Subdomain(*host))
}

// ambiguousPaths returns parts of paths that proxies interpret in different ways.
func ambiguousPaths() (within, atEnd []string) {
	return []string{"//", "/./", "/../", "%2f", "%2F"}, []string{"/..", "/."}
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	errs := validateIngressBackend(&p.Backend, at.Child("backend"))
	if unknown := validate.OneOfPtr(p.PathType, at.Child("pathType"),
		networkingv1.PathTypeExact, networkingv1.PathTypePrefix, networkingv1.PathTypeImplementationSpecific); len(unknown) > 0 {
		return append(errs, unknown...)
	}
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

// validateSegment checks a required name that is part of a URL.
func validateSegment(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return validate.Required(value, at)
	}
	return validate.FromMessages(value, at, content.IsPathSegmentName(value))
}

// validateGivenGroup checks an API group that may be absent, but not empty.
func validateGivenGroup(group *string, at *field.Path) field.ErrorList {
	if group == nil {
		return nil
	}
	return validate.FromMessages(*group, at, validation.IsDNS1123Subdomain(*group))
}

func validateIngressBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		r, at := b.Resource, at.Child("resource")
		return slices.Concat(validateGivenGroup(r.APIGroup, at.Child("apiGroup")), validateSegment(r.Kind, at.Child("kind")), validateSegment(r.Name, at.Child("name")))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "resource or service backend is required")}
	}
	service := at.Child("service")
	errs := validate.Required(b.Service.Name, service.Child("name"))
	if b.Service.Name != "" {
		errs = append(errs, validate.FromMessages(b.Service.Name, service.Child("name"), apivalidation.NameIsDNSLabel(b.Service.Name, false))...)
	}
	switch port := b.Service.Port; {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case port.Name != "":
		errs = append(errs, validate.FromMessages(port.Name, service.Child("port", "name"), validation.IsValidPortName(port.Name))...)
	case port.Number != 0:
		errs = append(errs, validate.Port(port.Number, service.Child("port", "number"))...)
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}
