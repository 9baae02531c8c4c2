package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// busyError returns the answer of a server that does not know yet whether objects use a ConfigMap. A webhook of ours has it, too.
func busyError(prefix string, seconds int32) *apierrors.StatusError {
	busy := protection.New("unused", "").Decide(protection.Request, []protection.Remaining{{Busy: true}}).
		Error(configMap("a").Resource.GroupResource(), "shop", "a")
	busy.ErrStatus.Message = prefix + busy.ErrStatus.Message
	busy.ErrStatus.Details.RetryAfterSeconds = seconds
	return busy
}

// The wait until nothing needs an object goes on while the server is too busy to say so, and asks it at the time that it has
// named, but not after the end of the command. A webhook that denies the deletion with the same code ends it.
func TestBusyServerIsAskedAgain(t *testing.T) {
	for _, by := range []string{"", `admission webhook "protect.coppice.dev" denied the request: `} {
		synctest.Test(t, func(t *testing.T) {
			d := &unusedDeletion{clock: clock.RealClock{}, target: configMap("a")}
			if err := d.awaitServer(t.Context()); err != nil {
				t.Fatal(err)
			}
			refused, err := d.refusal(fmt.Errorf("delete configmaps/a: %w", busyError(by, 30)))
			if !strings.Contains(refused, "is not known yet") || err != nil {
				t.Fatalf("%sbusy: %q, %v", by, refused, err)
			}
			asked := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := d.awaitServer(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after the end of the command: %v", err)
			}
			if err := d.awaitServer(t.Context()); err != nil || time.Since(asked) != 30*time.Second {
				t.Errorf("asked again after %v, %v", time.Since(asked), err)
			}
		})
	}
	d := &unusedDeletion{clock: clock.RealClock{}, target: configMap("a")}
	denial := denied(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	if refused, err := d.refusal(denial); refused != "" || !errors.Is(err, denial) {
		t.Errorf("a denial with the code of a busy server: %q, %v", refused, err)
	}
}

// The command sees the answer of a busy server: client-go does not repeat the DELETE until it has no time left.
func TestBusyAnswerIsNotLost(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 1}}`)
	}))
	t.Cleanup(server.Close)
	client, err := clientWithoutRepeats(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = prediction{policy: metav1.DeletePropagationBackground}.delete(t.Context(), client, configMap("a"))
	if after, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || after != 1 || requests != 1 {
		t.Errorf("after %d requests: %v", requests, err)
	}
}
