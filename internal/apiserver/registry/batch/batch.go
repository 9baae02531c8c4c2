// Package batch is the API group batch: Jobs and CronJobs.
package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// Group returns the API group batch/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: batchv1.SchemeGroupVersion,
		AddToScheme:  batchv1.AddToScheme,
		Resources:    []registry.Resource{jobs(), cronJobs()},
	}
}
