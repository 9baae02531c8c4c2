// Package flowcontrol is the API group flowcontrol.apiserver.k8s.io: the configuration of
// API Priority and Fairness.
package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Group returns the API group flowcontrol.apiserver.k8s.io/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		AddToScheme:  flowcontrolv1.AddToScheme,
		Resources:    []registry.Resource{flowSchemas(), priorityLevels()},
	}
}

// The defaults and bounds of the API.
const (
	defaultPrecedence = 1000
	maxPrecedence     = 10000
	defaultShares     = 30
	defaultQueues     = 64
	defaultHandSize   = 8
	defaultQueueLimit = 50
	maxQueues         = 10_000_000
)

// validateConditions checks that each condition of a status has a type, and that no two have the same.
func validateConditions[C any](conditions []C, kind func(C) string) field.ErrorList {
	path := field.NewPath("status", "conditions")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range conditions {
		at := path.Index(i).Child("type")
		if seen[kind(c)] {
			errs = append(errs, field.Duplicate(at, kind(c)))
		}
		seen[kind(c)] = true
		errs = append(errs, validate.Required(kind(c), at)...)
	}
	return errs
}
