package core

import (
	"crypto/tls"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// warnOfService warns about addresses, and about fields that a service of its type does not use.
func warnOfService(s, _ *corev1.Service) []string {
	var all []string
	spec := field.NewPath("spec")
	if _, given := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; given {
		all = append(all, fmt.Sprintf("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode))
	}
	if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
		all = append(all, validate.WarnOfIPs(spec.Child("clusterIPs"), s.Spec.ClusterIPs...)...)
	}
	headless := s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ClusterIP == corev1.ClusterIPNone
	external := s.Spec.Type == corev1.ServiceTypeExternalName
	warnIf := func(found bool, format string, values ...any) {
		if found {
			all = append(all, fmt.Sprintf(format, values...))
		}
	}
	externalIPs := len(s.Spec.ExternalIPs) > 0
	warnIf(headless && s.Spec.LoadBalancerIP != "", "spec.loadBalancerIP is ignored for headless services")
	warnIf(headless && externalIPs, "spec.externalIPs is ignored for headless services")
	warnIf(headless && s.Spec.SessionAffinity != corev1.ServiceAffinityNone, "spec.SessionAffinity is ignored for headless services")
	all = append(all, validate.WarnOfIPs(spec.Child("externalIPs"), s.Spec.ExternalIPs...)...)
	warnIf(externalIPs && !headless && !external, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	if s.Spec.LoadBalancerIP != "" {
		all = append(all, validation.GetWarningsForIP(spec.Child("loadBalancerIP"), s.Spec.LoadBalancerIP)...)
	}
	all = append(all, validate.WarnOfCIDRs(spec.Child("loadBalancerSourceRanges"), s.Spec.LoadBalancerSourceRanges...)...)
	warnIf(external && externalIPs, "spec.externalIPs is ignored when spec.type is %q", corev1.ServiceTypeExternalName)
	warnIf(!external && s.Spec.ExternalName != "", "spec.externalName is ignored when spec.type is not %q", corev1.ServiceTypeExternalName)
	warnIf(ptr.Deref(s.Spec.TrafficDistribution, "") == corev1.ServiceTrafficDistributionPreferClose,
		"spec.trafficDistribution: %q is deprecated; use %q", corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone)
	return all
}

// warnOfServiceStatus warns about the addresses of a load balancer.
func warnOfServiceStatus(s *corev1.Service) []string {
	var addresses []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		addresses = append(addresses, ingress.IP)
	}
	return validate.WarnOfIPs(field.NewPath("status", "loadBalancer", "ingress"), addresses...)
}

// warnOfEndpoints warns about addresses, unless the controller wrote them, which reads no warnings.
func warnOfEndpoints(e, _ *corev1.Endpoints) []string {
	if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil
	}
	var all []string
	ips := func(addresses []corev1.EndpointAddress, at *field.Path) {
		for i, a := range addresses {
			all = append(all, validation.GetWarningsForIP(at.Index(i).Child("ip"), a.IP)...)
		}
	}
	for i, subset := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		ips(subset.Addresses, at.Child("addresses"))
		ips(subset.NotReadyAddresses, at.Child("notReadyAddresses"))
	}
	return all
}

// warnOfNode warns about a field without effect, and about ranges of addresses.
func warnOfNode(n, _ *corev1.Node) []string {
	var all []string
	if n.Spec.DoNotUseExternalID != "" {
		all = append(all, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	return append(all, validate.WarnOfCIDRs(field.NewPath("spec", "podCIDRs"), n.Spec.PodCIDRs...)...)
}

// warnOfPodStatus warns about the addresses of a pod and of its node.
func warnOfPodStatus(p *corev1.Pod) []string {
	var all []string
	for i, a := range p.Status.PodIPs {
		all = append(all, validation.GetWarningsForIP(field.NewPath("status", "podIPs").Index(i).Child("ip"), a.IP)...)
	}
	for i, a := range p.Status.HostIPs {
		all = append(all, validation.GetWarningsForIP(field.NewPath("status", "hostIPs").Index(i).Child("ip"), a.IP)...)
	}
	return all
}

// warnOfVolume warns about annotations that fields have replaced, about deprecated labels of nodes, and about
// deprecated or removed kinds of volumes.
func warnOfVolume(pv, _ *corev1.PersistentVolume) []string {
	all := warnOfAnnotation(pv.Annotations, corev1.BetaStorageClassAnnotation, "storageClassName", "v1.8")
	all = append(all, warnOfAnnotation(pv.Annotations, corev1.MountOptionAnnotation, "mountOptions", "v1.31")...)
	spec := field.NewPath("spec")
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		all = append(all, spec.Child("persistentVolumeReclaimPolicy").String()+
			": The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i, term := range a.Required.NodeSelectorTerms {
			all = append(all, validate.WarnOfNodeTerm(term, spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))...)
		}
	}
	if pv.Spec.Flocker != nil || pv.Spec.Quobyte != nil {
		return all // Kubernetes warns about these in pods only
	}
	return append(all, podspec.WarnOfSource(&pv.Spec.PersistentVolumeSource, spec)...)
}

// warnOfClaim warns about an annotation that a field has replaced, and about fractional bytes.
func warnOfClaim(c, _ *corev1.PersistentVolumeClaim) []string {
	return append(warnOfAnnotation(c.Annotations, corev1.BetaStorageClassAnnotation, "storageClassName", "v1.8"),
		podspec.WarnOfClaim(&c.Spec, field.NewPath("spec"))...)
}

// warnOfAnnotation warns about an annotation that a field has replaced.
func warnOfAnnotation(annotations map[string]string, key, name, since string) []string {
	if _, given := annotations[key]; !given {
		return nil
	}
	return []string{fmt.Sprintf("%s: deprecated since %s; use %q attribute instead", field.NewPath("metadata", "annotations").Key(key), since, name)}
}

// warnOfSecret warns about a certificate and a key that are invalid or do not belong together.
func warnOfSecret(s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// warnOfAccount warns when a deprecated annotation is set.
func warnOfAccount(sa, old *corev1.ServiceAccount) []string {
	const key = "kubernetes.io/enforce-mountable-secrets"
	if old != nil {
		if _, had := old.Annotations[key]; had {
			return nil
		}
	}
	if _, has := sa.Annotations[key]; !has {
		return nil
	}
	return []string{"metadata.annotations[" + key + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

// warnOfQuota warns about a new quota whose requests exceed its limits.
func warnOfQuota(q, old *corev1.ResourceQuota) []string {
	if old != nil {
		return nil
	}
	var all []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		requests, limits := "requests."+name, "limits."+name
		if _, given := q.Spec.Hard[requests]; !given && slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, name) {
			requests = name
		}
		request, hasRequest := q.Spec.Hard[requests]
		limit, hasLimit := q.Spec.Hard[limits]
		if hasRequest && hasLimit && request.Cmp(limit) > 0 {
			all = append(all, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requests, request.String(), limits, limit.String()))
		}
	}
	return all
}
