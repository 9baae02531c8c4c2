package validate

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An object of a few hundred kilobytes can have as many mistakes as bytes. A response with all of them would take
// gigabytes, and minutes of a core: k8s.io/apiserver compares every two errors, and copies their text once per error.
const (
	// MaxErrors bounds the number of errors in a response. A built-in object with a wrong value in every field has up to 127.
	MaxErrors = 200
	// maxErrorsText bounds the text of the errors in a response, in bytes. The first error is always there.
	maxErrorsText = 256 << 10
	// maxErrorText bounds the text of one error, which quotes a value, in bytes.
	maxErrorText = 16 << 10
	// maxFieldText bounds the path of a field, which quotes keys, in bytes.
	maxFieldText = 4 << 10
	// maxListErrors bounds the errors that a check of a list collects. It is more than a response lists, so that the
	// response is the same.
	maxListErrors = 1000
	// MaxWarnings bounds the number of warnings in a response. k8s.io/apiserver sends 4096 characters of them.
	MaxWarnings = 100
	// maxWarningText bounds the text of one warning, in bytes. It is more than k8s.io/apiserver sends, in any language.
	maxWarningText = 32 << 10
)

// NewInvalid returns the error of an invalid object, with BoundedErrors.
func NewInvalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	return apierrors.NewInvalid(kind, name, BoundedErrors(errs))
}

// BoundedErrors returns the errors for a response: the first ones, with their texts shortened in the middle, and one
// error about the others.
func BoundedErrors(errs field.ErrorList) field.ErrorList {
	bounded := make(field.ErrorList, 0, min(len(errs), MaxErrors+1))
	size := 0
	for n, e := range errs {
		if n == MaxErrors || size > maxErrorsText {
			return append(bounded, &field.Error{
				Type: e.Type, Field: Shortened(e.Field, maxFieldText), BadValue: field.OmitValueType{}, Origin: e.Origin,
				Detail: notListed(len(errs) - n),
			})
		}
		e = boundedError(e)
		size += len(e.Field) + len(e.ErrorBody())
		bounded = append(bounded, e)
	}
	return bounded
}

// boundedError returns an error with a text of bounded length. The beginning of its value and the end of its detail
// stay.
func boundedError(e *field.Error) *field.Error {
	body := e.ErrorBody()
	if len(body) <= maxErrorText && len(e.Field) <= maxFieldText {
		return e
	}
	bounded := *e
	bounded.Field = Shortened(e.Field, maxFieldText)
	if len(body) > maxErrorText {
		bounded.BadValue = field.OmitValueType{}
		bounded.Detail = Shortened(strings.TrimPrefix(strings.TrimPrefix(body, e.Type.String()), ": "), maxErrorText)
	}
	return &bounded
}

// BoundedWarnings returns the warnings for a response: the first ones, with their texts shortened in the middle.
func BoundedWarnings(texts []string) []string {
	bounded := slices.Clone(texts[:min(len(texts), MaxWarnings)])
	for n, text := range bounded {
		bounded[n] = Shortened(text, maxWarningText)
	}
	return bounded
}

// Shortened returns a text with its middle left out where it is longer than a number of bytes.
func Shortened(text string, length int) string {
	if len(text) <= length {
		return text
	}
	begin, end := text[:length/2], text[len(text)-length/2:]
	return strings.ToValidUTF8(begin, "") + fmt.Sprintf(" … (%d bytes left out) … ", len(text)-len(begin)-len(end)) + strings.ToValidUTF8(end, "")
}
