package registry

import (
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// strategy is what the library's registry asks about a kind on its main endpoint.
// It holds what is the same for all kinds and leaves the rest to the row.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind Kind
}

func newStrategy(k Kind, typer runtime.ObjectTyper) strategy {
	return strategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, kind: k}
}

// NamespaceScoped implements rest.RESTCreateStrategy.
func (s strategy) NamespaceScoped() bool { return s.kind.Namespaced }

// PrepareForCreate clears the status, which is not the client's to write here,
// counts the first generation and lets the row complete the object.
func (s strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	b := s.kind.behaviour
	if b.status != nil && !b.statusFromCreator {
		b.status(obj, s.kind.New())
	}
	if b.desired != nil {
		metaOf(obj).SetGeneration(1)
	}
	b.creating(obj)
}

// Validate checks a new object. When it finds nothing, the library checks the
// metadata once more, with the weakest rule for names.
func (s strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessor(metaOf(obj), s.kind.Namespaced, s.kind.Name, field.NewPath("metadata"))
	errs = append(errs, validateNewFinalizers(metaOf(obj).GetFinalizers(), nil)...)
	return append(errs, s.kind.behaviour.validate(obj)...)
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (s strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// Canonicalize implements rest.RESTCreateStrategy and rest.RESTUpdateStrategy.
func (s strategy) Canonicalize(obj runtime.Object) { s.kind.behaviour.canonical(obj) }

// AllowCreateOnUpdate implements rest.RESTUpdateStrategy.
func (s strategy) AllowCreateOnUpdate(context.Context) bool { return s.kind.CreateOnUpdate }

// AllowUnconditionalUpdate implements rest.RESTUpdateStrategy.
func (s strategy) AllowUnconditionalUpdate(context.Context) bool { return s.kind.UnconditionalUpdate }

// PrepareForUpdate keeps the status, lets the row complete the object, and counts a
// generation if what the user desires is not what it was.
func (s strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	b := s.kind.behaviour
	if b.status != nil {
		b.status(obj, old)
	}
	b.updating(obj, old)
	if b.desired != nil && !equality.Semantic.DeepEqual(b.desired(obj), b.desired(old)) {
		metaOf(obj).SetGeneration(metaOf(old).GetGeneration() + 1)
	}
}

// ValidateUpdate checks a changed object; the library has checked its metadata.
func (s strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	b := s.kind.behaviour
	errs := b.validate(obj)
	if len(errs) > 0 && s.sameContent(obj, old) && len(b.validate(old)) > 0 {
		// Stored before there was that check. It must be possible to detach and to
		// release it all the same, or it could never be deleted.
		errs = nil
	}
	return slices.Concat(validateNewFinalizers(metaOf(obj).GetFinalizers(), metaOf(old).GetFinalizers()), errs, b.validateUpdate(obj, old))
}

// sameContent tells whether two objects differ in nothing but their metadata.
func (s strategy) sameContent(obj, old runtime.Object) bool {
	without := func(obj runtime.Object) runtime.Object {
		bare := s.kind.New()
		s.kind.assign(bare, obj)
		reflect.ValueOf(bare).Elem().FieldByName("ObjectMeta").SetZero()
		return bare
	}
	return equality.Semantic.DeepEqual(without(obj), without(old))
}

// validateNewFinalizers: a finalizer says who is to remove it. Those without a domain
// are the system's; the library checks only how they are written.
func validateNewFinalizers(finalizers, old []string) field.ErrorList {
	own := []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, string(corev1.FinalizerKubernetes)}
	var errs field.ErrorList
	for i, f := range finalizers {
		if strings.Contains(f, "/") || slices.Contains(own, f) || slices.Contains(old, f) {
			continue
		}
		errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), f, "name is neither a standard finalizer name nor is it fully qualified"))
	}
	return errs
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (s strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// GetResetFields names what a client cannot own by applying to the main endpoint.
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !s.kind.HasStatus() {
		return nil
	}
	return s.reset(fieldpath.MakePathOrDie("status"))
}

func (s strategy) reset(paths ...fieldpath.Path) map[fieldpath.APIVersion]*fieldpath.Set {
	sets := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range append(s.kind.legacyVersions(), s.kind.GroupVersion) {
		sets[fieldpath.APIVersion(version.String())] = fieldpath.NewSet(paths...)
	}
	return sets
}

// partStrategy is the strategy of an endpoint that changes one part of an object,
// such as /status. Of the metadata it accepts annotations only: what deletion,
// collection and controllers decide by (finalizers, owner references, labels) is
// not for those who may report a status.
type partStrategy struct {
	strategy
	// take copies the part.
	take func(to, from runtime.Object)
	// complete completes the part that was taken.
	complete func(obj, old runtime.Object)
	// other is the sibling of the part that this endpoint does not change.
	other string
	// validate checks a changed part.
	validate func(obj, old runtime.Object) field.ErrorList
}

// PrepareForUpdate makes obj what is stored, except for the part.
func (s partStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	sent := s.kind.New()
	s.kind.assign(sent, obj)
	s.kind.assign(obj, old.DeepCopyObject())
	s.take(obj, sent)
	s.complete(obj, old)

	to, from := metaOf(obj), metaOf(sent)
	to.SetAnnotations(from.GetAnnotations())
	to.SetManagedFields(from.GetManagedFields())
	// What identifies the object that the client means is compared, not ignored.
	to.SetName(from.GetName())
	to.SetNamespace(from.GetNamespace())
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
}

// ValidateUpdate checks the part; the rest is what was checked before.
func (s partStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.validate(obj, old)
}

// AllowCreateOnUpdate is false: there is no object to be made of a part.
func (s partStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

// GetResetFields names what a client cannot own by applying to this endpoint.
func (s partStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.reset(
		fieldpath.MakePathOrDie(s.other),
		fieldpath.MakePathOrDie("metadata", "labels"),
		fieldpath.MakePathOrDie("metadata", "finalizers"),
		fieldpath.MakePathOrDie("metadata", "ownerReferences"),
	)
}

// metaOf is the metadata of an object of the table. Every such type has it.
func metaOf(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	must(err)
	return m
}
