package storageversionmigrator

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
)

// A webhook that fails itself answers with a denial that has the code of a failed server: controller-runtime does so for any
// error of its handler. The migration goes on after it. Any other denial ends it.
func TestFailureOfAWebhookIsTransient(t *testing.T) {
	denied := func(code int32, reason metav1.StatusReason) error {
		return webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: code, Reason: reason, Message: "it is kept"})
	}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"a denial with 500":       {denied(http.StatusInternalServerError, ""), true},
		"a denial with 429":       {denied(http.StatusTooManyRequests, ""), true},
		"a denial with 503":       {denied(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable), true},
		"a denial with a timeout": {denied(http.StatusGatewayTimeout, metav1.StatusReasonTimeout), true},
		"a denial":                {denied(http.StatusForbidden, metav1.StatusReasonForbidden), false},
		"a denial with 400":       {denied(http.StatusBadRequest, metav1.StatusReasonBadRequest), false},
		"an invalid object":       {apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "a", nil), false},
		"an unreachable webhook":  {apierrors.NewInternalError(errors.New(`failed calling webhook "keep.example.com": connection refused`)), true},
		"a busy server":           {apierrors.NewTooManyRequests("slower", 1), true},
		"no answer":               {apierrors.NewTimeoutError("no answer", 1), true},
	} {
		if got := isTransient(c.err); got != c.want {
			t.Errorf("%s: %t, want %t: %v", name, got, c.want, c.err)
		}
	}
}
