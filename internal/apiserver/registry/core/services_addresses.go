package core

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// The addresses of services within the cluster. clusterIP is for clients that know only one address, and equals the
// first of clusterIPs.

// validateClusterIPs checks the addresses of a service and their families, one by one and together. An address that the
// stored service, old, has is valid: "None", too, in any place.
func validateClusterIPs(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var errs field.ErrorList
	all, list := spec.Child("clusterIPs"), s.Spec.ClusterIPs
	switch {
	case s.Spec.ClusterIP == "" && len(list) > 0:
		errs = append(errs, field.Invalid(all, list, "must be empty when `clusterIP` is not specified"))
	case s.Spec.ClusterIP != "" && len(list) == 0:
		errs = append(errs, field.Required(all, ""))
	case len(list) > 0 && list[0] != s.Spec.ClusterIP:
		errs = append(errs, field.Invalid(all, list, "first value must match `clusterIP`"))
	}
	errs = append(errs, validateFamilies(s, spec)...)
	var stored []string
	if old != nil {
		stored = old.Spec.ClusterIPs
	}
	invalid := validateEachClusterIP(list, stored, all)
	errs = append(errs, invalid...)
	if len(list) > maxAddresses {
		errs = append(errs, field.Invalid(all, list, "may only hold up to 2 values"))
	}
	if len(invalid) > 0 {
		return errs
	}
	errs = append(errs, validateDualStack(list, all)...)
	for i, ip := range list {
		if i >= len(s.Spec.IPFamilies) || s.Spec.ClusterIP == corev1.ClusterIPNone {
			break
		}
		if wanted := s.Spec.IPFamilies[i]; wanted != familyOf(ip) && isFamily(wanted) {
			errs = append(errs, field.Invalid(all.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", wanted, i)))
		}
	}
	return errs
}

// validateDualStack checks that several addresses are of different families.
func validateDualStack(list []string, at *field.Path) field.ErrorList {
	if len(list) < maxAddresses {
		return nil
	}
	var errs field.ErrorList
	isDual, err := netutils.IsDualStackIPStrings(list)
	if err != nil {
		errs = append(errs, field.InternalError(at, fmt.Errorf("failed to check for dual stack with error:%w", err)))
	}
	if !isDual {
		errs = append(errs, field.Invalid(at, list, "may specify no more than one IP for each IP family"))
	}
	return errs
}

// maxAddresses is the maximum number of addresses of a service: one of each family.
const maxAddresses = 2

func validateFamilies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.IPFamily]bool{}
	for i, family := range s.Spec.IPFamilies {
		at := spec.Child("ipFamilies").Index(i)
		if !isFamily(family) {
			errs = append(errs, field.NotSupported(at, family, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
		if seen[family] {
			errs = append(errs, field.Duplicate(at, family))
		}
		seen[family] = true
	}
	return append(errs, validate.OneOfPtr(s.Spec.IPFamilyPolicy, spec.Child("ipFamilyPolicy"),
		corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
}

func validateEachClusterIP(list, stored []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range list {
		switch {
		case i > 0 || ip != corev1.ClusterIPNone:
			errs = append(errs, validate.ChangedIP(ip, stored, at.Index(i))...)
		case len(list) > 1:
			errs = append(errs, field.Invalid(at, list, "'None' must be the first and only value"))
		}
	}
	return errs
}

func isFamily(family corev1.IPFamily) bool {
	return family == corev1.IPv4Protocol || family == corev1.IPv6Protocol
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// chooseFamilies sets the policy and the families of a service if the client left them out. A headless service without
// a selector has endpoints that its user creates, so it may have both families.
func (a serviceAllocation) chooseFamilies(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	if old != nil && prefersAsBefore(s, old) {
		return nil
	}
	isFree := s.Spec.ClusterIP == corev1.ClusterIPNone && len(s.Spec.Selector) == 0
	switch {
	case s.Spec.IPFamilyPolicy != nil:
	case old != nil && old.Spec.IPFamilyPolicy != nil:
		s.Spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
	case isFree:
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	default:
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	}
	if errs := validateClusterIPs(s, old, spec); len(errs) > 0 {
		return errs
	}
	errs := dropSecondFamily(s, old, spec)
	if errs = append(errs, a.inferFamilies(s, spec)...); len(errs) > 0 {
		return errs
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = []corev1.IPFamily{a.ranges.family()}
	}
	if isFree {
		if len(s.Spec.IPFamilies) == 1 && *s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, otherFamily(s.Spec.IPFamilies[0]))
		}
		return nil
	}
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, family := range s.Spec.IPFamilies {
		if family != a.ranges.family() {
			errs = append(errs, field.Invalid(spec.Child("ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	return errs
}

// prefersAsBefore reports whether a service with the policy PreferDualStack keeps its families: nothing about them has
// changed.
func prefersAsBefore(s, old *corev1.Service) bool {
	prefers := func(s *corev1.Service) bool {
		return ptr.Deref(s.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicyPreferDualStack
	}
	return prefers(s) && prefers(old) && s.Spec.Type == old.Spec.Type &&
		slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs) && slices.Equal(s.Spec.IPFamilies, old.Spec.IPFamilies)
}

// dropSecondFamily lets a client release the second family by changing the policy alone. Changing the list alone is an
// error.
func dropSecondFamily(s, old *corev1.Service, spec *field.Path) field.ErrorList {
	if old == nil {
		return nil
	}
	families, before := s.Spec.IPFamilies, old.Spec.IPFamilies
	switch isSingle := *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack; {
	case isSingle && len(families) > 1 && slices.Equal(families, before):
		s.Spec.IPFamilies = families[:1]
	case !isSingle && len(families) > 0 && len(families) < len(before):
		return field.ErrorList{field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy,
			"must be 'SingleStack' to release the secondary IP family")}
	}
	return nil
}

// inferFamilies adds the families of the addresses that a client has specified.
func (a serviceAllocation) inferFamilies(s *corev1.Service, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if *s.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
		const dual = "must be 'RequireDualStack' or 'PreferDualStack' when multiple "
		if len(s.Spec.ClusterIPs) > 1 {
			errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, dual+"cluster IPs are specified"))
		}
		if len(s.Spec.IPFamilies) > 1 {
			errs = append(errs, field.Invalid(spec.Child("ipFamilyPolicy"), s.Spec.IPFamilyPolicy, dual+"IP families are specified"))
		}
	}
	for i, ip := range s.Spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			break
		}
		switch family := familyOf(ip); {
		case i < len(s.Spec.IPFamilies):
		case family != a.ranges.family():
			errs = append(errs, field.Invalid(spec.Child("clusterIPs").Index(i), s.Spec.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
		default:
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
		}
	}
	return errs
}

func otherFamily(family corev1.IPFamily) corev1.IPFamily {
	if family == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
