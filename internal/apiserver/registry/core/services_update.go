package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// Updates of services. A client need not send allocated values back. Values that the new type does not use are dropped,
// unless the client changed them, too: validation reports that as a mistake.

// keepAllocated restores allocated values that a client left out.
func keepAllocated(s, old *corev1.Service) {
	keepAddresses(s, old)
	if hasNodePorts(s) && hasNodePorts(old) {
		keepNodePorts(s.Spec.Ports, old.Spec.Ports)
	}
	if needsHealthCheck(s) && needsHealthCheck(old) {
		registry.SetDefault(&s.Spec.HealthCheckNodePort, old.Spec.HealthCheckNodePort)
	}
}

// keepAddresses restores the addresses. If the client changed only one of the two fields, it updates the other one.
// validateClusterIPs refuses any remaining mismatch.
func keepAddresses(s, old *corev1.Service) {
	if s.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type != corev1.ServiceTypeExternalName {
		if s.Spec.ClusterIP == "" {
			s.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	switch isChanged, listIsSame := s.Spec.ClusterIP != old.Spec.ClusterIP, slices.Equal(s.Spec.ClusterIPs, old.Spec.ClusterIPs); {
	case !isChanged && len(s.Spec.ClusterIPs) == 0:
		s.Spec.ClusterIPs = old.Spec.ClusterIPs
	case isChanged && listIsSame && s.Spec.ClusterIP == "":
		s.Spec.ClusterIPs = nil
	case isChanged && listIsSame:
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}

// keepNodePorts gives a port the node port of the old port with the same name, unless another port has it now.
func keepNodePorts(ports, old []corev1.ServicePort) {
	had, taken := map[string]int32{}, map[int32]bool{}
	for _, p := range old {
		had[p.Name] = p.NodePort
	}
	for _, p := range ports {
		taken[p.NodePort] = true
	}
	for i := range ports {
		if p := &ports[i]; !taken[had[p.Name]] {
			registry.SetDefault(&p.NodePort, had[p.Name])
		}
	}
}

// dropUnused drops the values that only the old type used.
func dropUnused(s, old *corev1.Service) {
	spec, before := &s.Spec, &old.Spec
	if spec.Type == corev1.ServiceTypeExternalName && before.Type != corev1.ServiceTypeExternalName {
		if spec.ClusterIP == before.ClusterIP && slices.Equal(spec.ClusterIPs, before.ClusterIPs) {
			spec.ClusterIP, spec.ClusterIPs = "", nil
		}
		dropSame(&spec.IPFamilies, before.IPFamilies)
		dropSame(&spec.IPFamilyPolicy, before.IPFamilyPolicy)
	}
	if usesNodePorts(old) && !usesNodePorts(s) {
		dropNodePorts(spec.Ports, before.Ports)
	}
	if needsHealthCheck(old) && !needsHealthCheck(s) {
		dropSame(&spec.HealthCheckNodePort, before.HealthCheckNodePort)
	}
	if isExposed(old) && !isExposed(s) {
		dropSame(&spec.ExternalTrafficPolicy, before.ExternalTrafficPolicy)
	}
	if isBalanced(old) && !isBalanced(s) {
		dropSame(&spec.AllocateLoadBalancerNodePorts, before.AllocateLoadBalancerNodePorts)
		dropSame(&spec.LoadBalancerClass, before.LoadBalancerClass)
	}
}

// dropSame clears a field that the client did not change.
func dropSame[T any](value *T, before T) {
	if equality.Semantic.DeepEqual(*value, before) {
		var none T
		*value = none
	}
}

// dropNodePorts drops the node ports, unless the client requests new ones.
func dropNodePorts(ports, old []corev1.ServicePort) {
	known := map[int32]bool{0: true}
	for i := range old {
		known[old[i].NodePort] = true
	}
	isNew := func(p corev1.ServicePort) bool { return !known[p.NodePort] }
	if slices.ContainsFunc(ports, isNew) {
		return
	}
	for i := range ports {
		ports[i].NodePort = 0
	}
}

// prepareServiceUpdate drops the addresses of the load balancer if the service no longer has one.
func prepareServiceUpdate(s, old *corev1.Service) {
	if isBalanced(old) && !isBalanced(s) {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// validateServiceUpdate checks that the addresses of a service stay the same: clients may have cached them.
func validateServiceUpdate(s, old *corev1.Service) field.ErrorList {
	isExternal := s.Spec.Type == corev1.ServiceTypeExternalName || old.Spec.Type == corev1.ServiceTypeExternalName
	isHeadless, wasHeadless := s.Spec.ClusterIP == corev1.ClusterIPNone, old.Spec.ClusterIP == corev1.ClusterIPNone
	if isExternal || isHeadless && wasHeadless {
		return nil
	}
	spec := field.NewPath("spec")
	errs := validateKept(s.Spec.ClusterIPs, old.Spec.ClusterIPs, spec.Child("clusterIPs"))
	if isHeadless == wasHeadless {
		errs = append(errs, validateKept(s.Spec.IPFamilies, old.Spec.IPFamilies, spec.Child("ipFamilies"))...)
	}
	if isBalanced(s) && isBalanced(old) && !ptr.Equal(s.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass) {
		errs = append(errs, field.Invalid(spec.Child("loadBalancerClass"), s.Spec.LoadBalancerClass, "may not change once set"))
	}
	if needsHealthCheck(s) && needsHealthCheck(old) && s.Spec.HealthCheckNodePort != old.Spec.HealthCheckNodePort {
		errs = append(errs, field.Forbidden(spec.Child("healthCheckNodePort"), "field is immutable"))
	}
	return errs
}

// validateKept checks that the elements that both lists have do not change.
func validateKept[T comparable](list, old []T, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range min(len(list), len(old)) {
		if list[i] != old[i] {
			errs = append(errs, field.Invalid(at.Index(i), list, "may not change once set"))
		}
	}
	return errs
}
