package storage

import (
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// maxNodeID is the maximum length of a driver's ID for a node.
const maxNodeID = 256

// csiNodes list the drivers of a node. A CSINode has the name of its node.
func csiNodes() registry.Resource {
	return registry.Define[storagev1.CSINode, storagev1.CSINodeList](registry.Resource{
		GroupVersion:        storagev1.SchemeGroupVersion,
		Kind:                "CSINode",
		Plural:              "csinodes",
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Number("Drivers", "Drivers that are registered on the node.", func(n *storagev1.CSINode) int { return len(n.Spec.Drivers) }),
		table.Age(),
	}, registry.Strategy[*storagev1.CSINode]{
		Validate:       validateNode,
		ValidateUpdate: validateNodeUpdate,
		CopyStatus:     registry.CopyField(func(n *storagev1.CSINode) *storagev1.CSINodeStatus { return &n.Status }),
		// The health of storage belongs to a feature that Kubernetes does not enable by default.
		PrepareForStatusUpdate: func(n, old *storagev1.CSINode) { n.Status = old.Status },
	})
}

func validateNode(n *storagev1.CSINode) field.ErrorList {
	named := map[string]bool{}
	return validate.Each(n.Spec.Drivers, field.NewPath("spec", "drivers"), func(d *storagev1.CSINodeDriver, at *field.Path) field.ErrorList {
		errs := validateNodeDriver(d, at)
		if named[d.Name] { // also an empty name, as upstream
			errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
		}
		named[d.Name] = true
		return errs
	})
}

func validateNodeDriver(d *storagev1.CSINodeDriver, at *field.Path) field.ErrorList {
	id := at.Child("nodeID")
	errs := slices.Concat(
		podspec.ValidateDriverName(d.Name, at.Child("name")),
		validate.Required(d.NodeID, id),
	)
	if len(d.NodeID) > maxNodeID {
		errs = append(errs, field.Invalid(id, d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
	}
	if d.Allocatable != nil {
		errs = append(errs, validate.NotNegative(d.Allocatable.Count, at.Child("allocatable", "count"))...)
	}
	seen := map[string]bool{}
	for _, key := range d.TopologyKeys {
		errs = append(errs, validate.Required(key, at)...)
		if seen[key] {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen[key] = true
		errs = append(errs, validate.FromMessages(key, at, validation.IsQualifiedName(key))...)
	}
	return errs
}

// validateNodeUpdate checks that only the allocatable volumes of an existing driver change.
func validateNodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	var errs field.ErrorList
	named := map[string][]storagev1.CSINodeDriver{}
	for _, now := range n.Spec.Drivers {
		named[now.Name] = append(named[now.Name], now)
	}
	for _, before := range old.Spec.Drivers {
		for _, now := range named[before.Name] {
			now.Allocatable, before.Allocatable = nil, nil
			errs = append(errs, validate.Immutable(now, before, field.NewPath("spec", "drivers"))...)
		}
	}
	return errs
}
