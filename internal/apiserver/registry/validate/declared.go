package validate

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	declarative "k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The checks in this file are those that Kubernetes declares in the types of the API. Its package makes them, so that
// their words are those of its release.

// unbounded is the context of each check: the check of a value waits for nothing.
var unbounded = context.Background() //nolint:forbidigo,gochecknoglobals // nothing is waited for, and it never changes

// changing is the operation of a check that compares a value with the old one.
func changing() operation.Operation { return operation.Operation{Type: operation.Update} }

// Required checks that a field is not empty.
func Required[T ~string](value T, path *field.Path) field.ErrorList {
	return declarative.RequiredValue(unbounded, operation.Operation{}, path, &value, nil)
}

// OneOfPtr checks a field that may be absent, but not empty.
func OneOfPtr[T ~string](value *T, path *field.Path, allowed ...T) field.ErrorList {
	return declarative.Enum(unbounded, operation.Operation{}, path, value, nil, sets.New(allowed...), nil)
}

// MaxItems checks the number of elements of a list.
func MaxItems[T any](list []T, path *field.Path, limit int) field.ErrorList {
	return declarative.MaxItems(unbounded, operation.Operation{}, path, list, nil, limit)
}

// MaxBytes checks the length of a text in bytes.
func MaxBytes[T ~string](text T, path *field.Path, limit int) field.ErrorList {
	return declarative.MaxBytes(unbounded, operation.Operation{}, path, &text, nil, limit)
}

// MaxCharacters checks the length of a text in characters.
func MaxCharacters[T ~string](text T, path *field.Path, limit int) field.ErrorList {
	return declarative.MaxLength(unbounded, operation.Operation{}, path, &text, nil, limit)
}

// UUID checks the form of a UID.
func UUID[T ~string](uid *T, path *field.Path) field.ErrorList {
	return declarative.UUID(unbounded, operation.Operation{}, path, uid, nil)
}

// ShortName checks a DNS label.
func ShortName(name string, path *field.Path) field.ErrorList {
	return declarative.ShortName(unbounded, operation.Operation{}, path, &name, nil)
}

// LongName checks a DNS subdomain.
func LongName(name string, path *field.Path) field.ErrorList {
	return declarative.LongName(unbounded, operation.Operation{}, path, &name, nil)
}

// LongNameCaseless checks a DNS subdomain, whose letters may be upper-case.
func LongNameCaseless(name string, path *field.Path) field.ErrorList {
	return declarative.LongNameCaseless(unbounded, operation.Operation{}, path, &name, nil)
}

// ExtendedResourceName checks the name of a resource outside of kubernetes.io.
func ExtendedResourceName(name *string, path *field.Path) field.ErrorList {
	return declarative.ExtendedResourceName(unbounded, operation.Operation{}, path, name, nil)
}

// FullyQualifiedName checks the name of an attribute of devices with its domain.
func FullyQualifiedName(name string, path *field.Path) field.ErrorList {
	return declarative.ResourceFullyQualifiedName(unbounded, operation.Operation{}, path, &name, nil)
}

// PoolName checks the name of a pool of devices.
func PoolName(name string, path *field.Path) field.ErrorList {
	return declarative.ResourcePoolName(unbounded, operation.Operation{}, path, &name, nil)
}

// ImmutableUnnamed is Immutable for the fields that Kubernetes declares to be immutable: the error has no value.
func ImmutableUnnamed[T any](value, old T, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return declarative.Immutable(unbounded, changing(), path, value, old)
}

// SetOnce checks that a field which was set is as it was.
func SetOnce[T comparable](value, old T, path *field.Path) field.ErrorList {
	if value == old {
		return nil
	}
	return declarative.UpdateValueByCompare(unbounded, changing(), path, &value, &old, declarative.NoUnset, declarative.NoModify)
}

// NotModified checks that a field which was set is as it was, or absent.
func NotModified[T any](value, old *T, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(value, old) {
		return nil
	}
	return declarative.UpdatePointer(unbounded, changing(), path, value, old, declarative.NoModify)
}
