package definitions

import (
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	openapi "k8s.io/kube-openapi/pkg/validation/validate"
)

// instanceSchema is the schema of the instances of one version of a definition.
type instanceSchema struct {
	whole, status *spec.Schema // status is nil if it has no schema
	structural    *structuralschema.Structural
	rules         *cel.Validator // nil if there are none
	hasStatus     bool           // as a subresource
	enough        int            // mistakes: one more than a response lists
}

// newInstanceSchema returns the schema of a version, or nil if apiextensions-apiserver does not serve the version or does
// not validate its instances.
func newInstanceSchema(definition *apiextensionsv1.CustomResourceDefinition, version string, limit int) *instanceSchema {
	declared, err := apihelpers.GetSchemaForVersion(definition, version)
	if err != nil || declared == nil || declared.OpenAPIV3Schema == nil {
		return nil
	}
	internal := &apiextensions.CustomResourceValidation{}
	if apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(declared, internal, nil) != nil {
		return nil
	}
	known := &instanceSchema{enough: limit + 1}
	if known.structural, err = structuralschema.NewStructural(internal.OpenAPIV3Schema); err != nil {
		return nil
	}
	if _, known.whole, err = validation.NewSchemaValidator(internal.OpenAPIV3Schema); err != nil {
		return nil
	}
	if subresources, err := apihelpers.GetSubresourcesForVersion(definition, version); err == nil && subresources != nil {
		known.hasStatus = subresources.Status != nil
	}
	if status, ok := known.whole.Properties[statusField]; ok {
		known.status = &status
	}
	known.rules = cel.NewValidator(known.structural, true, celconfig.PerCallLimit)
	return known
}

// schemaNode validates a value as apiextensions-apiserver does, and stops in a list or a map after enough mistakes. Whether
// the value is valid stays the same, which matters to anyOf and not: the node leaves out items only beside other items
// that are invalid by the same schema.
type schemaNode struct {
	schema *spec.Schema
	path   string
	// stored relates the value to the stored one, nil if there is none. An unchanged value has no errors.
	stored *common.CorrelatedObject
	enough int // mistakes
}

// Validate implements validation.SchemaCreateValidator.
func (n schemaNode) Validate(value any, _ ...validation.ValidationOption) *openapi.Result {
	found := map[*spec.Schema]int{}
	item := func(of *spec.Schema, path string, stored *common.CorrelatedObject) openapi.ValueValidator {
		return itemValidator{schemaNode{of, path, stored, n.enough}, found}
	}
	result := openapi.NewSchemaValidator(n.schema, nil, n.path, strfmt.Default, func(o *openapi.SchemaValidatorOptions) {
		o.NewValidatorForField = func(name string, of *spec.Schema, _ any, path string, _ strfmt.Registry, _ ...openapi.Option) openapi.ValueValidator {
			return item(of, path, n.stored.Key(name))
		}
		o.NewValidatorForIndex = func(i int, of *spec.Schema, _ any, path string, _ strfmt.Registry, _ ...openapi.Option) openapi.ValueValidator {
			return item(of, path, n.stored.Index(i))
		}
	}).Validate(value)
	switch {
	case result.IsValid():
	case n.stored.CachedDeepEqual():
		return &openapi.Result{MatchCount: result.MatchCount}
	default:
		result.Errors = result.Errors[:min(len(result.Errors), n.enough)]
	}
	return result
}

// itemValidator validates an item of a list or a map, or a field.
type itemValidator struct {
	node schemaNode
	// found are the errors of the items so far, by the schema that they share.
	found map[*spec.Schema]int
}

// SetPath implements validate.ValueValidator of kube-openapi.
func (v itemValidator) SetPath(string) {}

// Applies implements validate.ValueValidator of kube-openapi.
func (v itemValidator) Applies(any, reflect.Kind) bool { return true }

// Validate implements validate.ValueValidator of kube-openapi.
func (v itemValidator) Validate(value any) *openapi.Result {
	if v.found[v.node.schema] >= v.node.enough {
		return &openapi.Result{}
	}
	result := v.node.Validate(value)
	if result != nil {
		v.found[v.node.schema] += len(result.Errors)
	}
	return result
}
