// Package core is the API group without a name: Pods, Services, Namespaces, Nodes,
// volumes and so on. The specs of pods are in package podspec.
package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// Group returns the API group without a name. Services get their addresses and node
// ports from ranges.
func Group(ranges ServiceRanges) registry.Group {
	return registry.Group{
		GroupVersion: corev1.SchemeGroupVersion,
		AddToScheme:  addToScheme,
		Resources: []registry.Resource{
			namespaces(), pods(), podTemplates(), nodes(), replicationControllers(),
			services(ranges), endpoints(),
			configMaps(), secrets(), serviceAccounts(),
			persistentVolumes(), persistentVolumeClaims(),
			events(),
			resourceQuotas(), limitRanges(),
		},
	}
}
