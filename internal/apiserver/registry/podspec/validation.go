// Package podspec contains the defaults and the validation of pod specs and of templates of pods
// and volume claims, for the API groups whose objects contain them.
package podspec

import (
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// ValidateSpec checks the spec of a pod or of a template. Its parts are in files of their
// own: containers (containers.go, env.go, probes.go, resources.go), volumes (volumes.go),
// resource claims (resourceclaims.go), placement (placement.go) and security (security.go).
func ValidateSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return slices.Concat(
		validate.OneOf(spec.RestartPolicy, path.Child("restartPolicy"),
			corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
		validateContainers(spec, path),
		validateVolumes(spec.Volumes, path.Child("volumes")),
		validateResourceClaims(spec.ResourceClaims, path.Child("resourceClaims")),
		validateDeadline(spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds")),
		validate.OptionalSubdomain(spec.ServiceAccountName, path.Child("serviceAccountName")),
		validate.OptionalSubdomain(spec.PriorityClassName, path.Child("priorityClassName")),
		validate.OptionalSubdomain(ptr.Deref(spec.RuntimeClassName, ""), path.Child("runtimeClassName")),
		validate.OneOfPtr(spec.PreemptionPolicy, path.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever),
		ValidateOverhead(spec.Overhead, path.Child("overhead")),
		validate.Each(spec.ReadinessGates, path.Child("readinessGates"), func(g *corev1.PodReadinessGate, at *field.Path) field.ErrorList {
			return validate.FromMessages(g.ConditionType, at.Child("conditionType"), validation.IsQualifiedName(string(g.ConditionType)))
		}),
		validateHosts(spec, path),
		validatePlacement(spec, path),
		validatePodSecurity(spec, path),
	)
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
)

// validateHosts checks the host names of the pod and its DNS configuration.
func validateHosts(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		validate.OptionalLabel(spec.Hostname, path.Child("hostname")),
		validate.OptionalLabel(spec.Subdomain, path.Child("subdomain")),
		validate.OneOf(spec.DNSPolicy, path.Child("dnsPolicy"),
			corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone),
		validate.Each(spec.HostAliases, path.Child("hostAliases"), func(a *corev1.HostAlias, at *field.Path) field.ErrorList {
			errs := validation.IsValidIP(at.Child("ip"), a.IP)
			return append(errs, validate.Each(a.Hostnames, at.Child("hostnames"), func(name *string, at *field.Path) field.ErrorList {
				return validate.FromMessages(*name, at, validation.IsDNS1123Subdomain(*name))
			})...)
		}),
	)
	dns := path.Child("dnsConfig")
	if spec.DNSPolicy == corev1.DNSNone && (spec.DNSConfig == nil || len(spec.DNSConfig.Nameservers) == 0) {
		errs = append(errs, field.Required(dns.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None"))
	}
	if spec.DNSConfig == nil {
		return errs
	}
	errs = append(errs, atMost(len(spec.DNSConfig.Nameservers), spec.DNSConfig.Nameservers, dns.Child("nameservers"), maxNameservers, "nameservers")...)
	errs = append(errs, validate.Each(spec.DNSConfig.Nameservers, dns.Child("nameservers"), func(ip *string, at *field.Path) field.ErrorList {
		return validation.IsValidIP(at, *ip)
	})...)
	errs = append(errs, atMost(len(spec.DNSConfig.Searches), spec.DNSConfig.Searches, dns.Child("searches"), maxSearches, "search paths")...)
	return append(errs, validate.Each(spec.DNSConfig.Options, dns.Child("options"), func(o *corev1.PodDNSConfigOption, at *field.Path) field.ErrorList {
		return validate.Required(o.Name, at.Child("name"))
	})...)
}

func atMost(n int, value any, path *field.Path, limit int, what string) field.ErrorList {
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, "must not have more than "+strconv.Itoa(limit)+" "+what)}
}

// ValidateTemplateMeta checks the metadata of the pods that are made from a template.
func ValidateTemplateMeta(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return slices.Concat(
		metav1validation.ValidateLabels(template.Labels, path.Child("labels")),
		apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations")),
	)
}

// sourcesOf returns the names of the sources that a volume has, in the order of the
// type's fields.
func sourcesOf(source *corev1.VolumeSource) []string { return validate.SetMembers(source) }
