package apps

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// allReplicas is the field that no other number of replicas may exceed.
const allReplicas = "status.replicas"

// validateObserved checks what a controller reports of its own work; collisions may be nil.
func validateObserved(generation int64, collisions *int32, status *field.Path) field.ErrorList {
	return append(validate.NotNegative(&generation, status.Child("observedGeneration")), validate.NotNegative(collisions, status.Child("collisionCount"))...)
}
