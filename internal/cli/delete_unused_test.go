package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	clocktesting "k8s.io/utils/clock/testing"

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
	d := &unusedDeletion{clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), target: configMap("a")}
	if refused, err := d.refusal(busyError("", math.MaxInt32)); refused == "" || err != nil || !d.again.Equal(time.Unix(1000, 0).Add(longestDelay)) {
		t.Errorf("a server that is busy for a lifetime is asked again at %v: %q, %v", d.again, refused, err)
	}
	denial := denied(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	if refused, err := d.refusal(denial); refused != "" || !errors.Is(err, denial) {
		t.Errorf("a denial with the code of a busy server: %q, %v", refused, err)
	}
}

// statusText returns the answer of a server that asks to repeat the request after some seconds; the text has no reason if the
// answer is not one of the API server.
func statusText(code int, reason metav1.StatusReason, seconds int) string {
	return fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q, "message": "not now", "details": {"retryAfterSeconds": %d}}`, code, reason, seconds)
}

// The command sees the answer of a server that puts off the DELETE, and goes on: client-go does not repeat the DELETE until it
// has no time left.
func TestBusyAnswerIsNotLost(t *testing.T) {
	for name, test := range map[string]struct {
		code       int
		reason     metav1.StatusReason
		isPlain    bool // as priority and fairness and load balancers answer
		unanswered bool // the object may be deleted
	}{
		"busy":               {code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests},
		"too many requests":  {code: http.StatusTooManyRequests, isPlain: true},
		"no leader":          {code: http.StatusInternalServerError, reason: metav1.StatusReasonServerTimeout, unanswered: true},
		"unavailable":        {code: http.StatusServiceUnavailable, reason: metav1.StatusReasonServiceUnavailable, unanswered: true},
		"no server is ready": {code: http.StatusServiceUnavailable, isPlain: true, unanswered: true},
		"timeout":            {code: http.StatusGatewayTimeout, reason: metav1.StatusReasonTimeout, unanswered: true},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.Header().Set("Retry-After", "3")
				if test.isPlain {
					http.Error(w, "not now", test.code)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, statusText(test.code, test.reason, 3))
			}))
			t.Cleanup(server.Close)
			client, err := clientWithoutRepeats(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			_, err = prediction{policy: metav1.DeletePropagationBackground}.delete(t.Context(), client, configMap("a"))
			if after, ok := apierrors.SuggestsClientDelay(err); !ok || after != 3 || requests != 1 {
				t.Errorf("after %d requests: %v", requests, err)
			}
			if !test.isPlain && !strings.Contains(err.Error(), "not now") {
				t.Errorf("the words of the server are lost: %v", err)
			}
			d := &unusedDeletion{clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), target: configMap("a")}
			refused, failed := d.refusal(err)
			if refused == "" || failed != nil || (d.lost != nil) != test.unanswered || !d.again.Equal(time.Unix(1003, 0)) {
				t.Errorf("%q, %v, asked again at %v; the object may be deleted: %v", refused, failed, d.again, d.lost)
			}
		})
	}
}
