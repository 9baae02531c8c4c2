package validate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestBoundedStatusKeepsBoundedErrors checks that errors with bounds stay as they are.
func TestBoundedStatusKeepsBoundedErrors(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	mistakes := func(n int, value string) *apierrors.StatusError {
		var errs field.ErrorList
		for i := range n {
			errs = append(errs, field.Invalid(field.NewPath("spec").Key(fmt.Sprint(i, value)), value, "must be shorter"))
		}
		return NewInvalid(schema.GroupKind{Group: "example.com", Kind: "Tree"}, strings.Repeat("n", 253), errs)
	}
	for name, err := range map[string]*apierrors.StatusError{
		"no mistakes":        apierrors.NewForbidden(schema.GroupResource{}, "a", nil),
		"one":                mistakes(1, ""),
		"a long one":         mistakes(1, long),
		"some long ones":     mistakes(3, long),
		"many":               mistakes(1000, ""),
		"many long ones":     mistakes(1000, long),
		"few unknown fields": apierrors.NewBadRequest("strict decoding error: unknown field \"a\", unknown field \"b\""),
	} {
		status := *err.ErrStatus.DeepCopy()
		if bounded, differs := BoundedStatus(status); differs || !cmp.Equal(bounded, err.ErrStatus) {
			t.Errorf("%s: %s", name, cmp.Diff(err.ErrStatus, bounded))
		}
	}
}

// TestBoundedStatus checks that errors of k8s.io/apiserver are shortened, and say so.
func TestBoundedStatus(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	fields := strings.TrimSuffix(strings.Repeat(`unknown field "a", `, 1000), ", ")
	causes := make([]metav1.StatusCause, 1000)
	for i := range causes {
		causes[i] = metav1.StatusCause{Message: fmt.Sprint("mistake ", i), Field: "spec"}
	}
	for name, test := range map[string]struct {
		err     *apierrors.StatusError
		message string // a part of it
		causes  int
		cause   string // a part of the last one
	}{
		"unknown fields": {apierrors.NewBadRequest("strict decoding error: " + fields), "at least 800 more errors", 0, ""},
		"a patch": {
			apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), long, "strict decoding error: "+fields)}),
			"at least 800 more errors", 1, "at least 800 more errors",
		},
		"a long value": {
			apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("spec"), long, "must be shorter")}),
			"bytes left out", 1, "must be shorter",
		},
		"many causes": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Message: long, Details: &metav1.StatusDetails{Causes: causes}}},
			"bytes left out", 202, "at least 799 more errors",
		},
	} {
		before := test.err.ErrStatus.DeepCopy()
		bounded, differs := BoundedStatus(test.err.ErrStatus)
		if !differs || !strings.Contains(bounded.Message, test.message) || len(bounded.Message) > 400_000 {
			t.Errorf("%s: %t, %d bytes: %.300s", name, differs, len(bounded.Message), bounded.Message)
		}
		if !cmp.Equal(&test.err.ErrStatus, before) {
			t.Errorf("%s: the original has changed", name)
		}
		if test.causes == 0 {
			continue
		}
		if n := len(bounded.Details.Causes); n != test.causes || !strings.Contains(bounded.Details.Causes[n-1].Message, test.cause) {
			t.Errorf("%s: %d causes, the last one is %.300s", name, n, bounded.Details.Causes[n-1].Message)
		}
	}
}
