package registry

import (
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// restStrategy is the strategy of genericregistry.Store for the main endpoint. It implements the behavior that all
// resources share and leaves the rest to the row.
type restStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	resource   Resource
	registries Registries
}

func newRESTStrategy(resource Resource, typer runtime.ObjectTyper, registries Registries) restStrategy {
	s := restStrategy{ObjectTyper: typer, NameGenerator: resource.NameGenerator, resource: resource, registries: registries}
	if s.NameGenerator == nil {
		s.NameGenerator = names.SimpleNameGenerator
	}
	return s
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (s restStrategy) NamespaceScoped() bool { return s.resource.Namespaced }

// PrepareForCreate clears the status, which clients cannot write here, sets the first generation
// and lets the row complete the object.
func (s restStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	row := s.resource.Strategy
	if row.CopyStatus != nil && !row.KeepStatusOnCreate {
		row.CopyStatus(obj, s.resource.New())
	}
	if row.Desired != nil {
		metaOf(obj).SetGeneration(1)
	}
	row.PrepareForCreate(obj)
}

// Validate checks a new object. If it finds nothing, rest.BeforeCreate checks the metadata once
// more, with the weakest rule for names.
func (s restStrategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(metaOf(obj), s.resource.Namespaced, s.resource.ValidateName, field.NewPath("metadata"))
	errs = append(errs, s.newFinalizers(metaOf(obj).GetFinalizers(), nil)...)
	row := s.resource.Strategy
	return slices.Concat(errs, row.ValidateWith(ctx, s.registries, obj, nil), s.content(ctx, obj, nil), row.ValidateCreate(obj))
}

// content checks everything but metadata.
func (s restStrategy) content(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	row := s.resource.Strategy
	return append(row.Validate(obj), row.ValidateIn(s.requestVersion(ctx), obj, old)...)
}

// requestVersion returns the group version in which a client has sent an object. For other callers it returns the row's
// version.
func (s restStrategy) requestVersion(ctx context.Context) schema.GroupVersion {
	if info, ok := genericrequest.RequestInfoFrom(ctx); ok {
		version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		if slices.Contains(s.resource.GroupVersions(), version) {
			return version
		}
	}
	return s.resource.GroupVersion
}

// ValidateDeclaratively implements rest.DeclarativeValidationStrategy. It checks nothing: of the methods of a strategy,
// it is the only one that sees the errors about the metadata of an update, too, before they become a response.
func (s restStrategy) ValidateDeclaratively(
	_ context.Context, _, _ runtime.Object, errs field.ErrorList, _ operation.Type, _ rest.DeclarativeValidationConfig,
) field.ErrorList {
	return validate.BoundedErrors(errs)
}

// DeclarativeValidationConfig implements rest.DeclarativeValidationStrategy.
func (s restStrategy) DeclarativeValidationConfig(context.Context, runtime.Object, runtime.Object) rest.DeclarativeValidationConfig {
	return rest.DeclarativeValidationConfig{}
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (s restStrategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return validate.BoundedWarnings(s.resource.Strategy.Warn(obj, nil))
}

// Canonicalize implements rest.RESTCreateStrategy and rest.RESTUpdateStrategy.
func (s restStrategy) Canonicalize(obj runtime.Object) { s.resource.Strategy.Canonicalize(obj) }

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (s restStrategy) AllowCreateOnUpdate(context.Context) bool { return s.resource.CreateOnUpdate }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (s restStrategy) AllowUnconditionalUpdate(context.Context) bool {
	return s.resource.UnconditionalUpdate
}

// PrepareForUpdate keeps the status, lets the row complete the object, and increments the generation if the desired
// state has changed.
func (s restStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	row := s.resource.Strategy
	if row.CopyStatus != nil {
		row.CopyStatus(obj, old)
	}
	row.PrepareForUpdate(obj, old)
	same := equality.Semantic.DeepEqual
	if s.resource.ExactGeneration {
		same = reflect.DeepEqual
	}
	if row.Desired != nil && !same(row.Desired(obj), row.Desired(old)) {
		metaOf(obj).SetGeneration(metaOf(old).GetGeneration() + 1)
	}
}

// ValidateUpdate checks a changed object; rest.BeforeUpdate has checked its metadata.
func (s restStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	row := s.resource.Strategy
	errs := s.content(ctx, obj, old)
	if len(errs) > 0 && s.sameContent(obj, old) && len(s.content(ctx, old, old)) > 0 {
		// The object was stored before this check existed. It must still be possible to detach
		// and release it, or it could never be deleted.
		errs = nil
	}
	return slices.Concat(s.newFinalizers(metaOf(obj).GetFinalizers(), metaOf(old).GetFinalizers()),
		row.ValidateWith(ctx, s.registries, obj, old), errs, row.ValidateUpdate(obj, old))
}

// sameContent reports whether two objects differ only in their metadata.
func (s restStrategy) sameContent(obj, old runtime.Object) bool {
	without := func(obj runtime.Object) runtime.Object {
		bare := s.resource.New()
		s.resource.assign(bare, obj)
		reflect.ValueOf(bare).Elem().FieldByName("ObjectMeta").SetZero()
		return bare
	}
	return equality.Semantic.DeepEqual(without(obj), without(old))
}

// newFinalizers checks the finalizers that are not among the old ones.
func (s restStrategy) newFinalizers(finalizers, old []string) field.ErrorList {
	if s.resource.AnyFinalizer {
		return nil
	}
	known := sets.New(old...)
	var errs field.ErrorList
	for i, f := range finalizers {
		if !known.Has(f) {
			errs = append(errs, ValidateFinalizerDomain(f, field.NewPath("metadata", "finalizers").Index(i))...)
		}
	}
	return errs
}

// ValidateFinalizerDomain checks that the name of a finalizer has a domain or is one of Kubernetes' own. The domain
// identifies the controller that removes it. apimachinery checks the syntax.
func ValidateFinalizerDomain(name string, at *field.Path) field.ErrorList {
	own := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}
	if strings.Contains(name, "/") || slices.Contains(own, name) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "name is neither a standard finalizer name nor is it fully qualified")}
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (s restStrategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return validate.BoundedWarnings(s.resource.Strategy.Warn(obj, old))
}

// GetResetFields returns the fields that a client cannot own by applying to the main endpoint.
func (s restStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	var paths []fieldpath.Path
	for _, name := range s.resource.Unmanaged {
		paths = append(paths, fieldpath.MakePathOrDie(name))
	}
	if s.resource.HasStatus() {
		paths = append(paths, fieldpath.MakePathOrDie("status"))
	}
	if len(paths) == 0 {
		return nil
	}
	return s.reset(paths...)
}

func (s restStrategy) reset(paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range s.resource.GroupVersions() {
		sets[fieldpath.APIVersion(version.String())] = fieldpath.NewSet(paths...)
	}
	return sets
}

// metaOf returns the metadata of an object. Every kind of the table has it.
func metaOf(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	utilruntime.Must(err)
	return m
}
