package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

const (
	// maxParameters is the maximum number of parameters of a class.
	maxParameters = 512
	// maxParameterSize is the maximum size of all parameters in bytes.
	maxParameterSize = 256 << 10
)

// volumeAttributesClasses are the attributes of volumes that can change while the volumes are in use.
func volumeAttributesClasses() registry.Resource {
	return registry.Define[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList](registry.Resource{
		GroupVersion:        storagev1.SchemeGroupVersion,
		Kind:                "VolumeAttributesClass",
		Plural:              "volumeattributesclasses",
		ShortNames:          []string{"vac"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{
		table.Text("DriverName", "Driver that the class is for.", func(c *storagev1.VolumeAttributesClass) string { return c.DriverName }),
		table.Age(),
	}, registry.Strategy[*storagev1.VolumeAttributesClass]{
		Validate: func(c *storagev1.VolumeAttributesClass) field.ErrorList {
			parameters := field.NewPath("parameters")
			errs := append(validateProvisioner(c.DriverName, field.NewPath("driverName")), validateParameters(c.Parameters, parameters)...)
			if len(c.Parameters) == 0 {
				errs = append(errs, field.Required(parameters, "must contain at least one key/value pair"))
			}
			return errs
		},
		ValidateUpdate: func(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
			var errs field.ErrorList
			if c.DriverName != old.DriverName {
				errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
			}
			if len(validate.Immutable(c.Parameters, old.Parameters, nil)) > 0 {
				errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
			}
			return errs
		},
	})
}

// validateParameters checks the parameters of a class, which its driver interprets.
func validateParameters(parameters map[string]string, at *field.Path) field.ErrorList {
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(at, "", maxParameters)}
	}
	var errs field.ErrorList
	if _, ok := parameters[""]; ok {
		errs = append(errs, field.Invalid(at, "", "field can not be empty."))
	}
	if sizeOf(parameters) > maxParameterSize {
		errs = append(errs, field.TooLong(at, "", maxParameterSize))
	}
	return errs
}
