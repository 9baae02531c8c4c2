// Package networking is the API group networking.k8s.io: NetworkPolicies, Ingresses,
// IngressClasses, ServiceCIDRs and IPAddresses.
package networking

import (
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// Group returns the API group networking.k8s.io/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: networkingv1.SchemeGroupVersion,
		AddToScheme:  networkingv1.AddToScheme,
		Resources:    []registry.Resource{networkPolicies(), ingresses(), ingressClasses(), serviceCIDRs(), ipAddresses()},
	}
}
