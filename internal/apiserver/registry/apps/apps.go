// Package apps is the API group apps, with its legacy versions and the legacy versions in the group extensions:
// Deployments, ReplicaSets, StatefulSets, DaemonSets and ControllerRevisions.
package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// Group returns the API group apps/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: appsv1.SchemeGroupVersion,
		AddToScheme:  appsv1.AddToScheme,
		Resources:    []registry.Resource{deployments(), replicaSets(), statefulSets(), daemonSets(), controllerRevisions()},
	}
}
