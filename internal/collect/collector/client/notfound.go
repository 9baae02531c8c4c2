package client

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// aboutObject turns a NotFound that is not about the object into another error. A server that
// does not serve the kind, even for a moment only, also answers 404, which must never count
// as evidence of absence (R3). Only an answer that names the object is evidence.
func aboutObject(ref Ref, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	// client-go returns it unwrapped; any other error does not count as an answer.
	status, ok := err.(apierrors.APIStatus)
	if ok && status.Status().Details != nil && status.Status().Details.Name == ref.Name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return err
	}
	return unservedError{ref, err}
}

// aboutWrite is aboutObject for the answer to a write. A webhook that refuses the write may answer with any code (R31).
func aboutWrite(ref Ref, err error) error {
	if _, refused := refusal.Of(err); refused {
		return err
	}
	return aboutObject(ref, err)
}

// unservedError means that the server does not serve such an object now. It does not wrap the
// answer, so that it does not count as a NotFound.
type unservedError struct {
	ref    Ref
	answer error
}

func (e unservedError) Error() string {
	if e.answer == nil {
		return fmt.Sprintf("%s: the kind is not served", e.ref)
	}
	return fmt.Sprintf("%s: the kind is not served: %v", e.ref, e.answer)
}

// IsRefusal reports whether an error means that the request was not carried out. Without an
// error, or after any other, it may have been.
func IsRefusal(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
	}
	return errors.As(err, &unservedError{})
}
