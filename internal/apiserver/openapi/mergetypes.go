package openapi

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
)

// MergeTypes provides the types of the served kinds for merging objects (structured-merge-diff), to mutating policies. It
// builds a type on first use: most servers have no such policy, and most policies are for few kinds. It implements
// patch.TypeConverterManager.
//
// k8s.io/apiserver has an implementation, too. It requests the server's list of OpenAPI documents every five seconds,
// for which the server builds and keeps all of them, and it does not know a new custom resource before the next request.
type MergeTypes struct {
	config  *common.OpenAPIV3Config
	schemes []*runtime.Scheme // schemes with the Go types of the built-in kinds
	log     *slog.Logger
	// definitions returns the CustomResourceDefinitions; nil until the API is installed.
	definitions func() cache.Store

	mu      sync.Mutex
	builtin map[schema.GroupVersionKind]managedfields.TypeConverter // guarded by mu
	custom  map[schema.GroupVersionKind]customType                  // guarded by mu
}

// customType is the type of a custom resource in one generation of its definition.
type customType struct {
	definition types.UID
	generation int64
	managedfields.TypeConverter
}

// NewMergeTypes returns the types of the built-in kinds, which config describes and whose Go types are in external, and
// of the kinds of established CustomResourceDefinitions. definitions may return nil until the API is installed.
func NewMergeTypes(config *common.OpenAPIV3Config, external *runtime.Scheme, definitions func() cache.Store, log *slog.Logger) *MergeTypes {
	return &MergeTypes{
		config:  config,
		schemes: []*runtime.Scheme{external, apiextensions.Scheme},
		log:     log, definitions: definitions,
		builtin: map[schema.GroupVersionKind]managedfields.TypeConverter{},
		custom:  map[schema.GroupVersionKind]customType{},
	}
}

// Run implements patch.TypeConverterManager. There is nothing to run.
func (t *MergeTypes) Run(context.Context) {}

// GetTypeConverter implements patch.TypeConverterManager. It returns nil for a kind that is not served.
func (t *MergeTypes) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	converter, err := t.typeOf(kind)
	if err != nil {
		t.log.Error("no type to merge objects by", "kind", kind.String(), "error", err)
		return nil
	}
	return converter
}

func (t *MergeTypes) typeOf(kind schema.GroupVersionKind) (managedfields.TypeConverter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.builtin[kind]; ok {
		return known, nil
	}
	for _, scheme := range t.schemes {
		if scheme.Recognizes(kind) {
			return t.buildBuiltin(scheme, kind)
		}
	}
	definition := t.definitionOf(kind)
	if definition == nil {
		return nil, fmt.Errorf("%s is not served", kind)
	}
	if known, ok := t.custom[kind]; ok && known.definition == definition.UID && known.generation == definition.Generation {
		return known.TypeConverter, nil
	}
	return t.buildCustom(definition, kind)
}

// buildBuiltin builds the type of a built-in kind. mu is held.
func (t *MergeTypes) buildBuiltin(scheme *runtime.Scheme, kind schema.GroupVersionKind) (managedfields.TypeConverter, error) {
	obj, err := scheme.New(kind)
	if err != nil {
		return nil, fmt.Errorf("create an object: %w", err)
	}
	// kube-openapi writes into the definitions, while other documents may be built from them.
	own := *t.config
	own.Definitions = nil
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(&own, util.GetCanonicalTypeName(obj))
	if err != nil {
		return nil, fmt.Errorf("describe the kind: %w", err)
	}
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("build the type: %w", err)
	}
	t.builtin[kind] = converter
	return converter, nil
}

// buildCustom builds the type of a custom resource, and drops types whose definitions no longer exist. mu
// is held.
func (t *MergeTypes) buildCustom(definition *apiextensionsv1.CustomResourceDefinition, kind schema.GroupVersionKind) (managedfields.TypeConverter, error) {
	document, err := builder.BuildOpenAPIV3(definition, kind.Version, builder.Options{})
	if err != nil {
		return nil, fmt.Errorf("describe the kind: %w", err)
	}
	converter, err := managedfields.NewTypeConverter(document.Components.Schemas, definition.Spec.PreserveUnknownFields)
	if err != nil {
		return nil, fmt.Errorf("build the type: %w", err)
	}
	for other := range t.custom {
		if t.definitionOf(other) == nil {
			delete(t.custom, other)
		}
	}
	t.custom[kind] = customType{definition: definition.UID, generation: definition.Generation, TypeConverter: converter}
	return converter, nil
}

// definitionOf returns the definition of a custom resource that serves the version, or nil.
func (t *MergeTypes) definitionOf(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	definitions := t.definitions()
	if definitions == nil {
		return nil
	}
	for _, obj := range definitions.List() {
		d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok || d.Spec.Group != kind.Group || d.Status.AcceptedNames.Kind != kind.Kind {
			continue
		}
		if apihelpers.HasServedCRDVersion(d, kind.Version) && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			return d
		}
	}
	return nil
}
