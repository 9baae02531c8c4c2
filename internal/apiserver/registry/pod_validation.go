package registry

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePodSpec checks a pod, or what a template would make: that it can be run,
// placed, told apart and ended. The parts have files of their own: containers
// (pod_containers.go, pod_env.go, pod_probes.go, pod_resources.go), volumes
// (pod_volumes.go), placement (pod_placement.go) and security (pod_security.go).
func validatePodSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return slices.Concat(
		oneOf(spec.RestartPolicy, path.Child("restartPolicy"),
			corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
		validateContainers(spec, path),
		validateVolumes(spec.Volumes, path.Child("volumes")),
		validateDeadline(spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds")),
		optionalSubdomain(spec.ServiceAccountName, path.Child("serviceAccountName")),
		optionalSubdomain(spec.PriorityClassName, path.Child("priorityClassName")),
		optionalSubdomain(deref(spec.RuntimeClassName, ""), path.Child("runtimeClassName")),
		oneOfPtr(spec.PreemptionPolicy, path.Child("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever),
		validateQuantities(spec.Overhead, path.Child("overhead")),
		each(spec.ReadinessGates, path.Child("readinessGates"), func(g *corev1.PodReadinessGate, at *field.Path) field.ErrorList {
			return wellFormed(g.ConditionType, at.Child("conditionType"), validation.IsQualifiedName(string(g.ConditionType)))
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
	return inRange(*seconds, path, 1, math.MaxInt32)
}

func optionalLabel(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	return wellFormed(value, path, validation.IsDNS1123Label(value))
}

// Limits of what a resolver takes.
const (
	maxNameservers = 3
	maxSearches    = 32
)

// validateHosts checks by which names the pod is known, and how it finds others.
func validateHosts(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		optionalLabel(spec.Hostname, path.Child("hostname")),
		optionalLabel(spec.Subdomain, path.Child("subdomain")),
		oneOf(spec.DNSPolicy, path.Child("dnsPolicy"),
			corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone),
		each(spec.HostAliases, path.Child("hostAliases"), func(a *corev1.HostAlias, at *field.Path) field.ErrorList {
			errs := validation.IsValidIP(at.Child("ip"), a.IP)
			return append(errs, each(a.Hostnames, at.Child("hostnames"), func(name *string, at *field.Path) field.ErrorList {
				return wellFormed(*name, at, validation.IsDNS1123Subdomain(*name))
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
	errs = append(errs, each(spec.DNSConfig.Nameservers, dns.Child("nameservers"), func(ip *string, at *field.Path) field.ErrorList {
		return validation.IsValidIP(at, *ip)
	})...)
	errs = append(errs, atMost(len(spec.DNSConfig.Searches), spec.DNSConfig.Searches, dns.Child("searches"), maxSearches, "search paths")...)
	return append(errs, each(spec.DNSConfig.Options, dns.Child("options"), func(o *corev1.PodDNSConfigOption, at *field.Path) field.ErrorList {
		return required(o.Name, at.Child("name"))
	})...)
}

func atMost(n int, value any, path *field.Path, limit int, what string) field.ErrorList {
	if n <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, "must not have more than "+strconv.Itoa(limit)+" "+what)}
}

// validateTemplateMeta checks the metadata that pods made from a template get.
func validateTemplateMeta(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return slices.Concat(
		metav1validation.ValidateLabels(template.Labels, path.Child("labels")),
		apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations")),
	)
}

// sourcesOf names the sources that a volume has, in the order of the type's fields.
func sourcesOf(source *corev1.VolumeSource) []string { return setPointers(source) }

// setPointers names the fields of a struct of pointers that are set, by their JSON
// name: the API's unions are written so, and grow.
func setPointers(union any) []string {
	var names []string
	v := reflect.ValueOf(union).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}
