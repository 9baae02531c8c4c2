// Package podspec contains the defaults and the validation of pod specs and of templates of pods
// and volume claims, for the API groups whose objects contain them.
package podspec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// ValidatePod checks the spec of a pod: with the rules of templates, and with rules that apply to running pods only.
func ValidatePod(pod *corev1.Pod) field.ErrorList {
	path := field.NewPath("spec")
	claims := validateResourceClaims(pod.Spec.ResourceClaims, path.Child("resourceClaims"))
	if IsStatic(pod) && len(pod.Spec.ResourceClaims) > 0 {
		claims = field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support resource claims")}
	}
	errs := append(validateSpec(&pod.Spec, claims, path), validateOwnTokens(pod, path.Child("volumes"))...)
	errs = append(errs, validate.Each(pod.Spec.Containers, path.Child("containers"), validateImageName)...)
	return append(errs, validate.Each(pod.Spec.InitContainers, path.Child("initContainers"), validateImageName)...)
}

// ValidateSpec checks the spec of a pod or of a template. Its parts are in files of their
// own: containers (containers.go, env.go, probes.go, resources.go), volumes (volumes.go),
// resource claims (resourceclaims.go), placement (placement.go) and security (security.go).
func ValidateSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return validateSpec(spec, validateResourceClaims(spec.ResourceClaims, path.Child("resourceClaims")), path)
}

// IsStatic reports whether a pod is the mirror of a static pod, which is defined on its node.
func IsStatic(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// validateSpec checks the spec of a pod or of a template; claims has the mistakes in its claims on devices.
func validateSpec(spec *corev1.PodSpec, claims field.ErrorList, path *field.Path) field.ErrorList {
	return slices.Concat(
		validate.OneOf(spec.RestartPolicy, path.Child("restartPolicy"),
			corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
		validateContainers(spec, path),
		claims,
		validatePodResources(spec, claimNamesOf(spec), path.Child("resources")),
		validateDeadline(spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds")),
		validate.OptionalSubdomain(spec.ServiceAccountName, path.Child("serviceAccountName")),
		validate.OptionalSubdomain(spec.PriorityClassName, path.Child("priorityClassName")),
		givenSubdomain(spec.RuntimeClassName, path.Child("runtimeClassName")),
		validateHostnameOverride(spec, path.Child("hostnameOverride")),
		validatePreemption(spec.PreemptionPolicy, path.Child("preemptionPolicy")),
		ValidateOverhead(spec.Overhead, path.Child("overhead")),
		validate.Each(spec.ReadinessGates, path.Child("readinessGates"), func(g *corev1.PodReadinessGate, at *field.Path) field.ErrorList {
			return validate.FromMessages(g.ConditionType, at.Child("conditionType"), validation.IsQualifiedName(string(g.ConditionType)))
		}),
		validateHosts(spec, path),
		validatePlacement(spec, path),
		validatePodSecurity(spec, path),
	)
}

func validatePreemption(policy *corev1.PreemptionPolicy, at *field.Path) field.ErrorList {
	if policy == nil {
		return nil
	}
	return validate.OneOf(*policy, at, corev1.PreemptLowerPriority, corev1.PreemptNever)
}

// givenSubdomain checks a name that may be absent, but not empty.
func givenSubdomain(name *string, path *field.Path) field.ErrorList {
	if name == nil {
		return nil
	}
	return validate.FromMessages(*name, path, validation.IsDNS1123Subdomain(*name))
}

func validateDeadline(seconds *int64, path *field.Path) field.ErrorList {
	if seconds == nil {
		return nil
	}
	return validate.InRange(*seconds, path, 1, math.MaxInt32)
}

// Limits of resolvers.
const (
	maxNameservers = 3
	maxSearches    = 32

	maxSearchLength = 2048
)

// validateHosts checks the host names of the pod and its DNS configuration.
func validateHosts(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		validate.OptionalLabel(spec.Hostname, path.Child("hostname")),
		validate.OptionalLabel(spec.Subdomain, path.Child("subdomain")),
		validate.OneOf(spec.DNSPolicy, path.Child("dnsPolicy"),
			corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone),
		validate.Each(spec.HostAliases, path.Child("hostAliases"), func(a *corev1.HostAlias, at *field.Path) field.ErrorList {
			errs := validate.IP(a.IP, at.Child("ip"))
			return append(errs, validate.Each(a.Hostnames, at.Child("hostnames"), func(name *string, at *field.Path) field.ErrorList {
				return validate.FromMessages(*name, at, validation.IsDNS1123Subdomain(*name))
			})...)
		}),
	)
	return append(errs, validateResolver(spec, path.Child("dnsConfig"))...)
}

// validateResolver checks the DNS configuration of a pod's containers.
func validateResolver(spec *corev1.PodSpec, dns *field.Path) field.ErrorList {
	switch none := spec.DNSPolicy == corev1.DNSNone; {
	case none && spec.DNSConfig == nil:
		return field.ErrorList{field.Required(dns, "must provide `dnsConfig` when `dnsPolicy` is None")}
	case none && len(spec.DNSConfig.Nameservers) == 0:
		return field.ErrorList{field.Required(dns.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")}
	case spec.DNSConfig == nil:
		return nil
	}
	var errs field.ErrorList
	errs = append(errs, atMost(len(spec.DNSConfig.Nameservers), spec.DNSConfig.Nameservers, dns.Child("nameservers"), maxNameservers, "nameservers")...)
	errs = append(errs, validate.Each(spec.DNSConfig.Nameservers, dns.Child("nameservers"), func(ip *string, at *field.Path) field.ErrorList {
		return validate.IP(*ip, at)
	})...)
	errs = append(errs, validateSearches(spec.DNSConfig.Searches, dns.Child("searches"))...)
	return append(errs, validate.Each(spec.DNSConfig.Options, dns.Child("options"), func(o *corev1.PodDNSConfigOption, at *field.Path) field.ErrorList {
		if o.Name == "" {
			return field.ErrorList{field.Required(at, "must not be empty")}
		}
		return nil
	})...)
}

// validateSearches checks the search list of a resolver: its elements may have underscores, and a dot means the root.
func validateSearches(searches []string, path *field.Path) field.ErrorList {
	errs := atMost(len(searches), searches, path, maxSearches, "search paths")
	if len(strings.Join(searches, " ")) > maxSearchLength {
		errs = append(errs, field.Invalid(path, searches, fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", maxSearchLength)))
	}
	return append(errs, validate.Each(searches, path, func(search *string, at *field.Path) field.ErrorList {
		if *search == "." {
			return nil
		}
		name := strings.TrimSuffix(*search, ".")
		return validate.FromMessages(name, at, validation.IsDNS1123SubdomainWithUnderscore(name))
	})...)
}

func atMost(n int, value any, path *field.Path, limit int, what string) field.ErrorList {
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, "must not have more than "+strconv.Itoa(limit)+" "+what)}
}

// ValidateTemplateMeta checks the metadata of a template's pods. As in Kubernetes, errors point to the template.
func ValidateTemplateMeta(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return slices.Concat(
		metav1validation.ValidateLabels(template.Labels, path.Child("labels")),
		apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations")),
		ValidateAnnotations(template.Annotations, &template.Spec, path.Child("annotations")),
	)
}

// sourcesOf returns the names of a volume's sources, in the order of the type's fields.
func sourcesOf(source *corev1.VolumeSource) []string { return validate.SetMembers(source) }

// maxHostname is the maximum length of the hostname of a Linux host, in bytes.
const maxHostname = 64

// validateHostnameOverride checks the overridden hostname of a pod. It excludes the other fields that set a hostname.
func validateHostnameOverride(spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	if spec.HostnameOverride == nil {
		return nil
	}
	errs := givenSubdomain(spec.HostnameOverride, at)
	errs = append(errs, validate.MaxBytes(*spec.HostnameOverride, at, maxHostname)...)
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
	}
	if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
		errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
	}
	return errs
}
