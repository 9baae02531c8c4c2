package definitions

import (
	"context"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemaobjectmeta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/utils/lru"
)

// keptSchemas is the number of schemas that a Checker keeps. Only definitions with large instances need one.
const keptSchemas = 32

// Checker finds the mistakes of custom resources before apiextensions-apiserver does. The validation of
// apiextensions-apiserver compares every two mistakes of an object, and copies their text once per mistake: an object of
// 20 kB takes seconds, and one of a megabyte takes minutes of a core, and gigabytes. A Checker stops early.
type Checker struct {
	definition func(name string) (*apiextensionsv1.CustomResourceDefinition, bool)
	limit      int        // of the mistakes that a response lists
	schemas    *lru.Cache // of *instanceSchema, by schemaKey
}

// schemaKey identifies the schema of a version of a definition.
type schemaKey struct {
	uid        types.UID
	generation int64
	version    string
}

// NewChecker returns a Checker for responses that list up to limit mistakes. definition returns a definition by its name.
func NewChecker(limit int, definition func(name string) (*apiextensionsv1.CustomResourceDefinition, bool)) *Checker {
	return &Checker{definition: definition, limit: limit, schemas: lru.New(keptSchemas)}
}

// Write is a write of a custom resource.
type Write struct {
	Kind        schema.GroupVersionKind // in the version of the request
	Resource    schema.GroupResource
	Subresource string
	New, Old    *unstructured.Unstructured // Old is nil if the write creates the object
}

// Mistakes returns the first mistakes of an object that has more than a response lists, otherwise nothing. It follows
// the order of apiextensions-apiserver. It does not look at small objects: apiextensions-apiserver validates them
// quickly, whatever they contain.
func (c *Checker) Mistakes(ctx context.Context, w Write) field.ErrorList {
	if w.Subresource != "" && w.Subresource != statusSubresource || countDown(validated(w.New.Object), c.limit) > 0 {
		return nil
	}
	definition, ok := c.definition(w.Resource.String())
	if !ok {
		return nil
	}
	errs := metadataMistakes(definition.Spec.Scope == apiextensionsv1.NamespaceScoped, w)
	if len(errs) > c.limit {
		return errs
	}
	known := c.schemaOf(definition, w.Kind.Version)
	if known == nil {
		return nil
	}
	errs = append(errs, known.mistakes(ctx, w)...)
	if len(errs) > c.limit {
		return errs
	}
	return nil
}

const (
	statusSubresource = "status"
	statusField       = "status"
)

// validated returns the parts of an object that a client writes. The server writes the managed fields.
func validated(content map[string]any) map[string]any {
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return content
	}
	parts := maps.Clone(content)
	parts["metadata"] = withoutField(metadata, "managedFields")
	return parts
}

// countDown subtracts the number of values in a value from a number, until it is zero.
func countDown(value any, left int) int {
	left--
	switch v := value.(type) {
	case map[string]any:
		for _, item := range v {
			if left <= 0 {
				break
			}
			left = countDown(item, left)
		}
	case []any:
		for _, item := range v {
			if left <= 0 {
				break
			}
			left = countDown(item, left)
		}
	}
	return left
}

func withoutField(content map[string]any, name string) map[string]any {
	without := maps.Clone(content)
	delete(without, name)
	return without
}

// metadataMistakes checks metadata, which a write to the status does not change.
func metadataMistakes(namespaced bool, w Write) field.ErrorList {
	at := field.NewPath("metadata")
	switch {
	case w.Subresource != "":
		return nil
	case w.Old != nil:
		return apivalidation.ValidateObjectMetaAccessorUpdate(w.New, w.Old, at)
	}
	return apivalidation.ValidateObjectMetaAccessor(w.New, namespaced, apivalidation.NameIsDNSSubdomain, at)
}

func (c *Checker) schemaOf(definition *apiextensionsv1.CustomResourceDefinition, version string) *instanceSchema {
	key := schemaKey{definition.UID, definition.Generation, version}
	if known, ok := c.schemas.Get(key); ok {
		return known.(*instanceSchema)
	}
	known := newInstanceSchema(definition, version, c.limit)
	c.schemas.Add(key, known)
	return known
}

// mistakes checks everything but metadata.
func (s *instanceSchema) mistakes(ctx context.Context, w Write) field.ErrorList {
	content := s.changed(w)
	var old map[string]any
	var stored *common.CorrelatedObject
	correlated := func() *common.CorrelatedObject { // with a cache of its own
		return common.NewCorrelatedObject(content, old, &model.Structural{Structural: s.structural})
	}
	if w.Old != nil {
		old = w.Old.Object
		stored = correlated()
	}
	var errs field.ErrorList
	if w.Subresource == "" {
		errs = validation.ValidateCustomResource(nil, content, schemaNode{s.whole, "", stored, s.enough})
		errs = append(errs, schemaobjectmeta.Validate(ctx, nil, content, s.structural, false)...)
	} else if status, ok := content[statusField]; ok && s.status != nil {
		errs = validation.ValidateCustomResource(field.NewPath(statusField), status, schemaNode{s.status, "", stored.Key(statusField), s.enough})
	}
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, s.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, content)...)
	}
	if s.rules == nil || len(errs) >= s.enough || blocksRules(errs) {
		return errs
	}
	var broken field.ErrorList
	if old == nil {
		broken, _ = s.rules.Validate(ctx, nil, s.structural, content, nil, celconfig.RuntimeCELCostBudget)
	} else {
		broken, _ = s.rules.Validate(ctx, nil, s.structural, content, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated()))
	}
	return append(errs, broken...)
}

// changed returns the object as apiextensions-apiserver validates it: a write changes the status, or everything else.
func (s *instanceSchema) changed(w Write) map[string]any {
	content, of := w.New.Object, w.Old
	switch {
	case !s.hasStatus:
		return content
	case w.Subresource != "":
		content, of = w.Old.Object, w.New
	}
	content = withoutField(content, statusField)
	if of != nil && of.Object[statusField] != nil {
		content[statusField] = of.Object[statusField]
	}
	return content
}

// blocksRules reports whether apiextensions-apiserver evaluates no rules because of other mistakes.
func blocksRules(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(e *field.Error) bool {
		return slices.Contains([]field.ErrorType{
			field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
		}, e.Type)
	})
}
