package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// deviceClasses are the classes of devices that claims request.
func deviceClasses() registry.Resource {
	return registry.Define[resourcev1.DeviceClass, resourcev1.DeviceClassList](registry.Resource{
		GroupVersion:        resourcev1.SchemeGroupVersion,
		Kind:                "DeviceClass",
		Plural:              "deviceclasses",
		ValidateName:        validateClassNaming,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, []table.Column{table.Age()}, registry.Strategy[*resourcev1.DeviceClass]{
		Desired: func(c *resourcev1.DeviceClass) any { return c.Spec },
		ValidateIn: func(_ schema.GroupVersion, c, old *resourcev1.DeviceClass) field.ErrorList {
			if old == nil {
				return validateClass(&c.Spec, &resourcev1.DeviceClassSpec{})
			}
			return validateClass(&c.Spec, &old.Spec)
		},
	})
}

// validateClass checks a class. Unchanged expressions were valid when they were stored.
func validateClass(c, old *resourcev1.DeviceClassSpec) field.ErrorList {
	spec := field.NewPath("spec")
	stored := equality.Semantic.DeepEqual(c.Selectors, old.Selectors)
	errs := validateSelectors(c.Selectors, spec.Child("selectors"), stored)
	stored = equality.Semantic.DeepEqual(c.Config, old.Config)
	errs = append(errs, validateList(c.Config, resourcev1.DeviceConfigMaxSize, spec.Child("config"),
		func(config *resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
			return validateConfig(&config.DeviceConfiguration, at, stored)
		})...)
	return append(errs, validate.ExtendedResourceName(c.ExtendedResourceName, spec.Child("extendedResourceName"))...)
}

// validateClassNaming checks names, but not prefixes for generated ones, as upstream does.
//
//nolint:revive // the signature is apimachinery's
func validateClassNaming(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return content.IsDNS1123Subdomain(name)
}
