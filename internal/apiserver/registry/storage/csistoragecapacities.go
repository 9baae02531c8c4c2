package storage

import (
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// csiStorageCapacities report the free storage of a storage class on some nodes.
func csiStorageCapacities() registry.Resource {
	return registry.Define[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList](registry.Resource{
		GroupVersion: storagev1.SchemeGroupVersion,
		Kind:         "CSIStorageCapacity",
		Plural:       "csistoragecapacities",
		Namespaced:   true,
		ValidateName: apivalidation.NameIsDNSSubdomain,
	}, []table.Column{
		table.Text("StorageClassName", "Storage class that it is about.", func(c *storagev1.CSIStorageCapacity) string { return c.StorageClassName }),
		table.Text("Capacity", "How much is free.", func(c *storagev1.CSIStorageCapacity) string {
			if c.Capacity == nil {
				return "<unset>"
			}
			return c.Capacity.String()
		}),
	}, registry.Strategy[*storagev1.CSIStorageCapacity]{
		Warn:     warnOfCapacity,
		Validate: validateCapacity,
		ValidateUpdate: func(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
			return append(
				validate.Immutable(c.NodeTopology, old.NodeTopology, field.NewPath("nodeTopology")),
				validate.Immutable(c.StorageClassName, old.StorageClassName, field.NewPath("storageClassName"))...)
		},
	})
}

// warnOfCapacity warns about deprecated labels of nodes.
func warnOfCapacity(c, _ *storagev1.CSIStorageCapacity) []string {
	if c.NodeTopology == nil {
		return nil
	}
	var all []string
	at := field.NewPath("nodeTopology")
	for i, expression := range c.NodeTopology.MatchExpressions {
		if text := validate.DeprecatedNodeLabel(expression.Key); text != "" {
			all = append(all, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), expression.Key, text))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if text := validate.DeprecatedNodeLabel(key); text != "" {
			all = append(all, fmt.Sprintf("%s: %s", at.Child("matchLabels").Child(key), text))
		}
	}
	return all
}

func validateCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	class := field.NewPath("storageClassName")
	errs := slices.Concat(
		validate.OptionalLabelSelector(c.NodeTopology, field.NewPath("nodeTopology")),
		validate.FromMessages(c.StorageClassName, class, apivalidation.NameIsDNSSubdomain(c.StorageClassName, false)),
	)
	if c.Capacity != nil && c.Capacity.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), c.Capacity.String(), apivalidation.IsNegativeErrorMsg))
	}
	return errs
}
