package definitions

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	schemaobjectmeta "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Checker finds the mistakes of custom resources before apiextensions-apiserver does. The validation of
// apiextensions-apiserver compares every two mistakes of an object, and copies their text once per mistake: an object of
// 20 kB takes seconds, and one of a megabyte takes minutes of a core, and gigabytes. A Checker stops early.
//
// It looks at every object: a small one may have many mistakes, for example one per required field of each item of a list.
type Checker struct {
	definition func(name string) (*apiextensionsv1.CustomResourceDefinition, bool)
	limit      int // of the mistakes that a response lists

	mu      sync.Mutex
	schemas map[schemaKey]func() *instanceSchema // guarded by mu
}

// NewChecker returns a Checker for responses that list up to limit mistakes. definition returns a definition by its name.
func NewChecker(limit int, definition func(name string) (*apiextensionsv1.CustomResourceDefinition, bool)) *Checker {
	return &Checker{definition: definition, limit: limit, schemas: map[schemaKey]func() *instanceSchema{}}
}

// Write is a write of a custom resource.
type Write struct {
	Kind        schema.GroupVersionKind // in the version of the request
	Resource    schema.GroupResource
	Subresource string
	New, Old    *unstructured.Unstructured // Old is nil if the write creates the object
}

// Mistakes returns the first mistakes of an object that has more than a response lists, otherwise nothing. It follows
// the order of apiextensions-apiserver.
//
// apiextensions-apiserver also compares mistakes that it then ignores, because the stored object has them, or because
// the value matches another alternative of the schema. If there are too many of them, one mistake says so. A write that
// changes nothing but metadata is not refused for that reason: finalizers and owners must stay removable.
func (c *Checker) Mistakes(ctx context.Context, w Write) field.ErrorList {
	if w.Subresource != "" && w.Subresource != statusSubresource {
		return nil
	}
	name := w.Resource.String()
	definition, ok := c.definition(name)
	if !ok {
		return nil
	}
	errs := metadataMistakes(definition.Spec.Scope == apiextensionsv1.NamespaceScoped, w)
	if len(errs) > c.limit {
		return errs
	}
	known := c.schemaOf(name, definition, w.Kind.Version)
	if known == nil {
		return nil
	}
	comparing := &comparisons{left: mostComparisons}
	errs = append(errs, known.mistakes(ctx, w, comparing)...)
	switch {
	case len(errs) > c.limit:
		return errs
	case comparing.areTooMany() && !known.keepsContent(w):
		return field.ErrorList{comparing.mistake()}
	}
	return nil
}

const (
	statusSubresource = "status"
	statusField       = "status"
)

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

// mistakes checks everything but metadata.
func (s *instanceSchema) mistakes(ctx context.Context, w Write, comparing *comparisons) field.ErrorList {
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
		errs = validation.ValidateCustomResource(nil, content, schemaNode{s.whole, "", stored, comparing})
		errs = append(errs, schemaobjectmeta.Validate(ctx, nil, content, s.structural, false)...)
	} else if status, ok := content[statusField]; ok && s.status != nil {
		errs = validation.ValidateCustomResource(field.NewPath(statusField), status, schemaNode{s.status, "", stored.Key(statusField), comparing})
	}
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, s.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, content)...)
	}
	if comparing.areTooMany() || blocksRules(errs) || s.breaksFew(content, errs) {
		return errs
	}
	var broken field.ErrorList
	if old == nil {
		broken, _ = s.rules().Validate(ctx, nil, s.structural, content, nil, celconfig.RuntimeCELCostBudget)
	} else {
		broken, _ = s.rules().Validate(ctx, nil, s.structural, content, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(correlated()))
	}
	return append(errs, broken...)
}

// keepsContent reports whether a write changes nothing but metadata.
func (s *instanceSchema) keepsContent(w Write) bool {
	const metadata = "metadata"
	return w.Old != nil && reflect.DeepEqual(withoutField(s.changed(w), metadata), withoutField(w.Old.Object, metadata))
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
