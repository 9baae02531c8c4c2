package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
)

// Strategy describes how a resource differs from others, in terms of its own Go type. Every
// field is optional.
type Strategy[T runtime.Object] struct {
	// Default sets defaults. It runs on everything that is decoded, from requests and from
	// storage, so it must be idempotent.
	Default func(T)
	// Allocate gives an object its unique values. old is the stored object, nil for a new one.
	// It runs before all of the following.
	Allocate func(a *allocation.Allocation, obj, old T) (field.ErrorList, error)
	// Unique returns an object's unique values.
	Unique func(T) []string
	// BeginCreate completes a new object from other objects. It runs before PrepareForCreate.
	// Its error is returned to the client.
	BeginCreate func(context.Context, Registries, T) error
	// BeginUpdate checks a changed object against other objects.
	BeginUpdate func(context.Context, Registries, T) error
	// PrepareForCreate completes a new object before it is validated. Its status is
	// empty and its generation is set.
	PrepareForCreate func(T)
	// PrepareForUpdate completes a changed object before it is validated, on the main
	// endpoint.
	PrepareForUpdate func(obj, old T)
	// PrepareForStatusUpdate completes a changed status before it is validated, on /status.
	PrepareForStatusUpdate func(obj, old T)
	// Canonicalize brings a valid object into the form in which it is stored.
	Canonicalize func(T)

	// Validate checks everything but metadata, on create and on update.
	Validate func(T) field.ErrorList
	// ValidateCreate checks the rules that apply to new objects only.
	ValidateCreate func(T) field.ErrorList
	// ValidateIn checks the rules that depend on the group version of the request, or on the stored object; old is nil
	// for a new object.
	ValidateIn func(version schema.GroupVersion, obj, old T) field.ErrorList
	// ValidateWith checks the rules that depend on other objects, on the main endpoint and on /status. old is nil for a
	// new object.
	ValidateWith func(ctx context.Context, rs Registries, obj, old T) field.ErrorList
	// ValidateUpdate checks the changes on the main endpoint.
	ValidateUpdate func(obj, old T) field.ErrorList
	// ValidateStatusUpdate checks the changes on /status.
	ValidateStatusUpdate func(obj, old T) field.ErrorList

	// Warn returns warnings about valid objects with probable mistakes, on the main endpoint. old is nil for a new
	// object.
	Warn func(obj, old T) []string
	// WarnOfStatus returns such warnings on /status.
	WarnOfStatus func(T) []string

	// Desired returns the part of the object that the user controls: when it changes, the generation is incremented.
	// Nil: objects have no generation.
	Desired func(T) any
	// CopyStatus copies the status. Nil: the kind has none.
	CopyStatus func(to, from T)
	// KeepStatusOnCreate: the client that creates the object knows its status (a node
	// agent registers its node), so it is not cleared.
	KeepStatusOnCreate bool

	// SelectableFields returns the values of the kind's own field labels.
	SelectableFields func(T) fields.Set
	// IndexedFields are the field labels for which the watch cache keeps an index.
	IndexedFields []string
	// Scale describes /scale. Nil: the resource has no /scale.
	Scale *Scaling[T]
	// Subresources returns further subresources, by their last path segment.
	Subresources func(*REST) map[string]rest.Storage
}

// untyped makes the functions of a strategy callable without knowing the type. Absent ones do
// nothing, except where absence has a meaning.
func untyped[P runtime.Object](s Strategy[P]) Strategy[runtime.Object] {
	u := Strategy[runtime.Object]{
		Default:                untyped1(s.Default),
		BeginCreate:            untypedLookup(s.BeginCreate),
		BeginUpdate:            untypedLookup(s.BeginUpdate),
		PrepareForCreate:       untyped1(s.PrepareForCreate),
		PrepareForUpdate:       untyped2(s.PrepareForUpdate),
		PrepareForStatusUpdate: untyped2(s.PrepareForStatusUpdate),
		Canonicalize:           untyped1(s.Canonicalize),
		Validate:               func(runtime.Object) field.ErrorList { return nil },
		ValidateCreate:         func(runtime.Object) field.ErrorList { return nil },
		ValidateIn:             func(schema.GroupVersion, runtime.Object, runtime.Object) field.ErrorList { return nil },
		ValidateWith:           func(context.Context, Registries, runtime.Object, runtime.Object) field.ErrorList { return nil },
		ValidateUpdate:         untypedCheck(s.ValidateUpdate),
		ValidateStatusUpdate:   untypedCheck(s.ValidateStatusUpdate),
		SelectableFields:       func(runtime.Object) fields.Set { return nil },
		IndexedFields:          s.IndexedFields,
		KeepStatusOnCreate:     s.KeepStatusOnCreate,
		Subresources:           func(*REST) map[string]rest.Storage { return nil },
	}
	if s.Validate != nil {
		u.Validate = func(obj runtime.Object) field.ErrorList { return s.Validate(obj.(P)) }
	}
	if s.ValidateCreate != nil {
		u.ValidateCreate = func(obj runtime.Object) field.ErrorList { return s.ValidateCreate(obj.(P)) }
	}
	if s.ValidateIn != nil {
		u.ValidateIn = func(version schema.GroupVersion, obj, old runtime.Object) field.ErrorList {
			before, _ := old.(P)
			return s.ValidateIn(version, obj.(P), before)
		}
	}
	if s.ValidateWith != nil {
		u.ValidateWith = func(ctx context.Context, rs Registries, obj, old runtime.Object) field.ErrorList {
			before, _ := old.(P)
			return s.ValidateWith(ctx, rs, obj.(P), before)
		}
	}
	u.Warn, u.WarnOfStatus = untypedWarnings(s)
	if s.Unique != nil {
		u.Unique = func(obj runtime.Object) []string { return s.Unique(obj.(P)) }
	}
	if s.Desired != nil {
		u.Desired = func(obj runtime.Object) any { return s.Desired(obj.(P)) }
	}
	if s.CopyStatus != nil {
		u.CopyStatus = untyped2(s.CopyStatus)
	}
	if s.SelectableFields != nil {
		u.SelectableFields = func(obj runtime.Object) fields.Set { return s.SelectableFields(obj.(P)) }
	}
	if s.Allocate != nil {
		u.Allocate = func(a *allocation.Allocation, obj, old runtime.Object) (field.ErrorList, error) {
			before, _ := old.(P)
			return s.Allocate(a, obj.(P), before)
		}
	}
	if s.Scale != nil {
		u.Scale = s.Scale.untyped()
	}
	if s.Subresources != nil {
		u.Subresources = s.Subresources
	}
	return u
}

func untypedWarnings[P runtime.Object](s Strategy[P]) (main func(obj, old runtime.Object) []string, status func(runtime.Object) []string) {
	main = func(obj, old runtime.Object) []string {
		if s.Warn == nil {
			return nil
		}
		before, _ := old.(P)
		return s.Warn(obj.(P), before)
	}
	status = func(obj runtime.Object) []string {
		if s.WarnOfStatus == nil {
			return nil
		}
		return s.WarnOfStatus(obj.(P))
	}
	return main, status
}

func untyped1[P runtime.Object](f func(P)) func(runtime.Object) {
	if f == nil {
		return func(runtime.Object) {}
	}
	return func(obj runtime.Object) { f(obj.(P)) }
}

func untyped2[P runtime.Object](f func(a, b P)) func(a, b runtime.Object) {
	if f == nil {
		return func(_, _ runtime.Object) {}
	}
	return func(a, b runtime.Object) { f(a.(P), b.(P)) }
}

func untypedLookup[P runtime.Object](f func(context.Context, Registries, P) error) func(context.Context, Registries, runtime.Object) error {
	if f == nil {
		return func(context.Context, Registries, runtime.Object) error { return nil }
	}
	return func(ctx context.Context, rs Registries, obj runtime.Object) error { return f(ctx, rs, obj.(P)) }
}

func untypedCheck[P runtime.Object](f func(obj, old P) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	if f == nil {
		return func(_, _ runtime.Object) field.ErrorList { return nil }
	}
	return func(obj, old runtime.Object) field.ErrorList { return f(obj.(P), old.(P)) }
}

// CopyField returns a function that copies one field of an object.
func CopyField[P, S any](at func(P) *S) func(to, from P) {
	return func(to, from P) { *at(to) = *at(from) }
}

// SetDefault sets a field that has its zero value.
func SetDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetDefaultPtr sets a field that is nil.
func SetDefaultPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
