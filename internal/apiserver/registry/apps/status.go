package apps

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// allReplicas is the field that no other number of replicas may exceed.
const allReplicas = "status.replicas"

// validateObserved checks what a controller reports of its own work. Collisions, which may be nil, only
// become more: names that have been taken before are not tried again.
func validateObserved(generation int64, collisions, were *int32, status *field.Path) field.ErrorList {
	at := status.Child("collisionCount")
	errs := append(validate.NotNegative(&generation, status.Child("observedGeneration")), validate.NotNegative(collisions, at)...)
	if now := ptr.Deref(collisions, 0); were != nil && (collisions == nil || now < *were) {
		errs = append(errs, field.Invalid(at, now, "cannot be decremented"))
	}
	return errs
}
