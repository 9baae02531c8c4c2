package storageversionmigrator

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
)

// A webhook that denies a write may choose the code of a server that has failed. The migration does not repeat the write.
func TestDeniedWriteIsNotTransient(t *testing.T) {
	for _, code := range []int32{http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		if err := webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: code, Message: "it is kept"}); isTransient(err) {
			t.Errorf("%d: %v is repeated", code, err)
		}
	}
	unreachable := apierrors.NewInternalError(errors.New(`failed calling webhook "keep.example.com": connection refused`))
	for _, err := range []error{unreachable, apierrors.NewTooManyRequests("slower", 1), apierrors.NewTimeoutError("no answer", 1)} {
		if !isTransient(err) {
			t.Errorf("%v is not repeated", err)
		}
	}
}
