package apps

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// allReplicas is the field that no other number of replicas may exceed.
const allReplicas = "status.replicas"

// validateObserved checks the status of a controller's own work. collisions may be nil. It only increases: the
// controller does not try a name twice.
func validateObserved(generation int64, collisions, were *int32, status *field.Path) field.ErrorList {
	at := status.Child("collisionCount")
	errs := append(validate.NotNegative(&generation, status.Child("observedGeneration")), validate.NotNegative(collisions, at)...)
	if now := ptr.Deref(collisions, 0); were != nil && (collisions == nil || now < *were) {
		errs = append(errs, field.Invalid(at, now, "cannot be decremented"))
	}
	return errs
}
