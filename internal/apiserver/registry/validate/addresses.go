package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// IP checks an address as upstream does in fields that existed before Kubernetes required one spelling for each
// address.
func IP(ip string, at *field.Path) field.ErrorList {
	return ChangedIP(ip, nil, at)
}

// ChangedIP checks an address that an update may have changed: those that the stored object has are valid.
func ChangedIP(ip string, stored []string, at *field.Path) field.ErrorList {
	return validation.IsValidIPForLegacyField(at, ip, true, stored)
}

// CIDR checks a range of addresses in such a field.
func CIDR(cidr string, at *field.Path) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(at, cidr, true, nil)
}

// Reachable checks that other hosts can reach an address.
func Reachable(ip string, at *field.Path) field.ErrorList {
	address := netutils.ParseIPSloppy(ip)
	if address == nil {
		return field.ErrorList{field.Invalid(at, ip, "must be a valid IP address")}
	}
	var errs field.ErrorList
	if address.IsUnspecified() {
		errs = append(errs, field.Invalid(at, ip, fmt.Sprintf("may not be unspecified (%s)", ip)))
	}
	if address.IsLoopback() {
		errs = append(errs, field.Invalid(at, ip, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if address.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(at, ip, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if address.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(at, ip, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}

// LoadBalancerAddress checks an address of a load balancer: an IP address, a name, or both.
func LoadBalancerAddress(ip, hostname string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ip != "" {
		errs = append(errs, IP(ip, at.Child("ip"))...)
	}
	if hostname == "" {
		return errs
	}
	errs = append(errs, FromMessages(hostname, at.Child("hostname"), validation.IsDNS1123Subdomain(hostname))...)
	if netutils.ParseIPSloppy(hostname) != nil {
		errs = append(errs, field.Invalid(at.Child("hostname"), hostname, "must be a DNS name, not an IP address"))
	}
	return errs
}
