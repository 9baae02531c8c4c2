package networking

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// maxRanges is the number of ranges of a ServiceCIDR: one for each address family.
const maxRanges = 2

func serviceCIDRs() registry.Resource {
	return registry.Define[networkingv1.ServiceCIDR, networkingv1.ServiceCIDRList](registry.Resource{
		GroupVersion:        networkingv1.SchemeGroupVersion,
		Kind:                "ServiceCIDR",
		Plural:              "servicecidrs",
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("CIDRs", "Ranges of the addresses of services.", func(c *networkingv1.ServiceCIDR) string { return strings.Join(c.Spec.CIDRs, ",") }),
		table.Age(),
	}, registry.Strategy[*networkingv1.ServiceCIDR]{
		ValidateCreate: func(c *networkingv1.ServiceCIDR) field.ErrorList {
			return validateRanges(c.Spec.CIDRs, field.NewPath("spec", "cidrs"))
		},
		ValidateUpdate: func(c, old *networkingv1.ServiceCIDR) field.ErrorList {
			return validateRangesUpdate(c.Spec.CIDRs, old.Spec.CIDRs, field.NewPath("spec", "cidrs"))
		},
		CopyStatus: registry.CopyField(func(c *networkingv1.ServiceCIDR) *networkingv1.ServiceCIDRStatus { return &c.Status }),
	})
}

func validateRanges(ranges []string, at *field.Path) field.ErrorList {
	switch {
	case len(ranges) == 0:
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	case len(ranges) > maxRanges:
		return field.ErrorList{field.Invalid(at, networkingv1.ServiceCIDRSpec{CIDRs: ranges}, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, r := range ranges {
		errs = append(errs, validation.IsValidCIDR(at.Index(i), r)...)
	}
	family := netutils.IPFamilyOfCIDRString(ranges[0])
	if len(ranges) == maxRanges && family != netutils.IPFamilyUnknown && family == netutils.IPFamilyOfCIDRString(ranges[1]) {
		errs = append(errs, field.Invalid(at, ranges, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}

// validateRangesUpdate: services have addresses of the ranges, so that they stay. The range of a
// second family may be added.
func validateRangesUpdate(ranges, old []string, at *field.Path) field.ErrorList {
	if len(ranges) != len(old) && (len(old) != 1 || len(ranges) != maxRanges) {
		return field.ErrorList{field.Invalid(at, ranges, apivalidation.FieldImmutableErrorMsg)}
	}
	var errs field.ErrorList
	for i := range old {
		errs = append(errs, validate.Immutable(ranges[i], old[i], at.Index(i))...)
	}
	if len(ranges) > len(old) {
		errs = append(errs, validateRanges(ranges, at)...)
	}
	return errs
}
