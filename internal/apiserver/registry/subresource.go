package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Subresource returns an endpoint that changes one part of an object: copyPart copies
// the part, and sibling is the top-level field next to it that this endpoint does not
// change, and whose fields it does not add to managedFields; empty: none.
func Subresource[P runtime.Object](r *REST, copyPart func(to, from P), sibling string, validate func(obj, old P) field.ErrorList) *SubresourceREST {
	s := subresourceOf(r, copyPart, validate)
	s.sibling = sibling
	return r.subresource(s)
}

// SpecSubresource is Subresource for a part of the desired state. The endpoint does not change any metadata but the
// generation: whoever may resize a pod or debug it cannot make it a mirror pod by an annotation.
func SpecSubresource[P runtime.Object](r *REST, copyPart func(to, from P), validate func(obj, old P) field.ErrorList) *SubresourceREST {
	s := subresourceOf(r, copyPart, validate)
	s.metadata = noMetadata
	return r.subresource(s)
}

func subresourceOf[P runtime.Object](r *REST, copyPart func(to, from P), validate func(obj, old P) field.ErrorList) subresourceStrategy {
	return subresourceStrategy{
		restStrategy: newRESTStrategy(r.Resource, r.CreateStrategy, nil),
		copyPart:     untyped2(copyPart),
		complete:     func(_, _ runtime.Object) {},
		validate:     untypedCheck(validate),
		validateWith: func(context.Context, Registries, runtime.Object, runtime.Object) field.ErrorList { return nil },
		warn:         func(runtime.Object) []string { return nil },
	}
}

func (r *REST) subresource(s subresourceStrategy) *SubresourceREST {
	store := *r.Store
	store.UpdateStrategy, store.ResetFieldsStrategy = s, s
	return &SubresourceREST{store: &store}
}

// SubresourceREST is an endpoint of an object that changes one part of it.
type SubresourceREST struct {
	store *genericregistry.Store
}

// New implements rest.Storage.
func (r *SubresourceREST) New() runtime.Object { return r.store.New() }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (r *SubresourceREST) Destroy() {}

// GetUpdateStrategy returns the strategy of this endpoint.
func (r *SubresourceREST) GetUpdateStrategy() rest.RESTUpdateStrategy { return r.store.UpdateStrategy }

// Get implements rest.Getter.
func (r *SubresourceREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update implements rest.Updater. It never creates, not even for an apply.
func (r *SubresourceREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (r *SubresourceREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (r *SubresourceREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// UpdateOnly returns an endpoint that serves PUT only. The API installer of k8s.io/apiserver serves every verb for which
// a storage has a method.
func UpdateOnly(r *SubresourceREST) UpdateOnlyREST { return UpdateOnlyREST{r, r} }

// UpdateOnlyREST has the methods of a SubresourceREST without those that read.
type UpdateOnlyREST struct {
	rest.Updater
	strategic
}

// strategic is an endpoint with strategies.
type strategic interface {
	Destroy()
	GetUpdateStrategy() rest.RESTUpdateStrategy
	GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set
}

// subresourceStrategy is the strategy of an endpoint that changes one part of an object,
// such as /status. Of the metadata it accepts annotations at most: the metadata on which
// deletion, the collector and controllers depend (finalizers, owner references, labels)
// must not be changed with the permission to report a status. The validation of a kind
// checks the annotations that have a meaning for it.
type subresourceStrategy struct {
	restStrategy
	copyPart func(to, from runtime.Object)
	metadata acceptedMetadata
	// complete completes the part that was copied.
	complete func(obj, old runtime.Object)
	// sibling is the field next to the part that this endpoint does not change. Empty: none that is reset in
	// managedFields.
	sibling string
	// validate checks a changed part.
	validate func(obj, old runtime.Object) field.ErrorList
	// validateWith checks the rules that depend on other objects.
	validateWith func(ctx context.Context, rs Registries, obj, old runtime.Object) field.ErrorList
	// warn returns the warnings about the part.
	warn func(runtime.Object) []string
}

// acceptedMetadata says which metadata an endpoint changes.
type acceptedMetadata int

const (
	annotations acceptedMetadata = iota
	noMetadata
)

// PrepareForUpdate resets obj to the stored object, except for the part.
func (s subresourceStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	sent := s.resource.New()
	s.resource.assign(sent, obj)
	s.resource.assign(obj, old.DeepCopyObject())
	s.copyPart(obj, sent)
	s.complete(obj, old)

	to, from := metaOf(obj), metaOf(sent)
	if s.metadata == annotations {
		to.SetAnnotations(from.GetAnnotations())
	}
	to.SetManagedFields(from.GetManagedFields())
	// The fields that identify the object are compared, not ignored.
	to.SetName(from.GetName())
	to.SetNamespace(from.GetNamespace())
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
}

// ValidateUpdate checks the part. The rest was checked when it was stored.
func (s subresourceStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return append(s.validateWith(ctx, s.registries, obj, old), s.validate(obj, old)...)
}

// WarningsOnUpdate returns the warnings about the part. Other endpoints warn about their own changes.
func (s subresourceStrategy) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return validate.BoundedWarnings(s.warn(obj))
}

// AllowCreateOnUpdate returns false: a part alone is not an object.
func (s subresourceStrategy) AllowCreateOnUpdate(context.Context) bool { return false }

// GetResetFields returns the fields that a client cannot own by applying to this endpoint.
func (s subresourceStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	paths := []fieldpath.Path{
		fieldpath.MakePathOrDie("metadata", "labels"),
		fieldpath.MakePathOrDie("metadata", "finalizers"),
		fieldpath.MakePathOrDie("metadata", "ownerReferences"),
	}
	if s.metadata == noMetadata {
		paths = append(paths, fieldpath.MakePathOrDie("metadata", "annotations"))
	}
	if s.sibling != "" {
		paths = append(paths, fieldpath.MakePathOrDie(s.sibling))
	}
	return s.reset(paths...)
}
