package definitions

import (
	"maps"
	"reflect"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	rules         func() *cel.Validator // compiled when they are needed first; nil if there are none
	hasStatus     bool                  // as a subresource
	limit         int                   // of the mistakes that a response lists
}

// schemaKey identifies the schema of a version of a definition.
type schemaKey struct {
	name       string
	uid        types.UID
	generation int64
	version    string
}

// schemaOf returns the schema of a version of a definition, which is compiled once. A large one takes half a second.
func (c *Checker) schemaOf(name string, definition *apiextensionsv1.CustomResourceDefinition, version string) *instanceSchema {
	key := schemaKey{name, definition.UID, definition.Generation, version}
	c.mu.Lock()
	known, ok := c.schemas[key]
	if !ok {
		c.forgetChanged()
		known = sync.OnceValue(func() *instanceSchema { return newInstanceSchema(definition, version, c.limit) })
		c.schemas[key] = known
	}
	c.mu.Unlock()
	return known() // without the lock: only requests of the same kind wait
}

// forgetChanged drops the schemas of definitions that have changed or are gone. The caller holds mu.
func (c *Checker) forgetChanged() {
	maps.DeleteFunc(c.schemas, func(key schemaKey, _ func() *instanceSchema) bool {
		definition, ok := c.definition(key.name)
		return !ok || definition.UID != key.uid || definition.Generation != key.generation
	})
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
	known := &instanceSchema{limit: limit}
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
	known.rules = sync.OnceValue(func() *cel.Validator { return cel.NewValidator(known.structural, true, celconfig.PerCallLimit) })
	return known
}

// breaksFew reports whether an object that has some mistakes cannot have more than a response lists, even if it breaks
// every rule. Its rules need not be compiled and evaluated then: apiextensions-apiserver does that.
func (s *instanceSchema) breaksFew(content map[string]any, errs field.ErrorList) bool {
	return rulesAfter(s.structural, content, s.limit-len(errs)) >= 0
}

// rulesAfter subtracts the number of rules about a value and its parts from a number, until it is negative.
func rulesAfter(s *structuralschema.Structural, value any, left int) int {
	if s == nil || value == nil || left < 0 {
		return left
	}
	left -= len(s.XValidations)
	switch v := value.(type) {
	case map[string]any:
		for name, item := range v {
			if property, ok := s.Properties[name]; ok {
				left = rulesAfter(&property, item, left)
			} else if s.AdditionalProperties != nil {
				left = rulesAfter(s.AdditionalProperties.Structural, item, left)
			}
		}
	case []any:
		for _, item := range v {
			left = rulesAfter(s.Items, item, left)
		}
	}
	return left
}

// schemaNode validates a value as apiextensions-apiserver does, until there are too many mistakes to compare.
type schemaNode struct {
	schema *spec.Schema
	path   string
	// stored relates the value to the stored one, nil if there is none. An unchanged value has no errors.
	stored    *common.CorrelatedObject
	comparing *comparisons
}

// Validate implements validation.SchemaCreateValidator.
func (n schemaNode) Validate(value any, _ ...validation.ValidationOption) *openapi.Result {
	if n.compareAlternatives(value); n.comparing.areTooMany() {
		return &openapi.Result{}
	}
	found := 0
	item := func(of *spec.Schema, path string, stored *common.CorrelatedObject) openapi.ValueValidator {
		return itemValidator{schemaNode{of, path, stored, n.comparing}, n.path, &found}
	}
	result := openapi.NewSchemaValidator(n.schema, nil, n.path, strfmt.Default, func(o *openapi.SchemaValidatorOptions) {
		o.NewValidatorForField = func(name string, of *spec.Schema, _ any, path string, _ strfmt.Registry, _ ...openapi.Option) openapi.ValueValidator {
			return item(of, path, n.stored.Key(name))
		}
		o.NewValidatorForIndex = func(i int, of *spec.Schema, _ any, path string, _ strfmt.Registry, _ ...openapi.Option) openapi.ValueValidator {
			return item(of, path, n.stored.Index(i))
		}
	}).Validate(value)
	if !result.IsValid() && n.stored.CachedDeepEqual() {
		return (&openapi.Result{}).MergeAsWarnings(result)
	}
	return result
}

// compareAlternatives counts the comparisons of mistakes in the alternatives of the schema: kube-openapi validates their
// items without a validator of ours. It compares them with no stored value.
func (n schemaNode) compareAlternatives(value any) {
	isValid := func(alternative *spec.Schema) bool {
		return schemaNode{schema: alternative, path: n.path, comparing: n.comparing}.Validate(value).IsValid()
	}
	for i := range n.schema.AnyOf {
		if isValid(&n.schema.AnyOf[i]) {
			break
		}
	}
	for _, all := range [][]spec.Schema{n.schema.OneOf, n.schema.AllOf} {
		for i := range all {
			isValid(&all[i])
		}
	}
	if n.schema.Not != nil {
		isValid(n.schema.Not)
	}
}

// itemValidator validates an item of a list or a map, or a field.
type itemValidator struct {
	node schemaNode
	// parent is the path of the list, the map or the object.
	parent string
	// found is the number of mistakes of the items so far.
	found *int
}

// SetPath implements validate.ValueValidator of kube-openapi.
func (v itemValidator) SetPath(string) {}

// Applies implements validate.ValueValidator of kube-openapi.
func (v itemValidator) Applies(any, reflect.Kind) bool { return true }

// Validate implements validate.ValueValidator of kube-openapi.
func (v itemValidator) Validate(value any) *openapi.Result {
	if v.node.comparing.areTooMany() {
		return &openapi.Result{}
	}
	result := v.node.Validate(value)
	mistakes := len(result.Errors) + len(result.Warnings)
	v.node.comparing.add(mistakes, *v.found, v.parent)
	*v.found += mistakes
	return result
}
