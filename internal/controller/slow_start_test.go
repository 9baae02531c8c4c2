package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// If all requests would be refused, only one is sent; later refusals affect at most one batch.
func TestSlowStartBatch(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		n, refuse int // refuse is the first call that fails; -1 for none
		calls     int32
	}{
		"none":               {n: 0, refuse: -1, calls: 0},
		"all":                {n: 100, refuse: -1, calls: 100},
		"the first":          {n: 100, refuse: 0, calls: 1},
		"the second":         {n: 100, refuse: 1, calls: 3},
		"in the fourth step": {n: 100, refuse: 9, calls: 15},
		"the last":           {n: 100, refuse: 99, calls: 100},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			err := SlowStartBatch(t.Context(), c.n, func(_ context.Context, i int) error {
				calls.Add(1)
				if i == c.refuse {
					return refused
				}
				return nil
			})
			if (c.refuse >= 0) != errors.Is(err, refused) {
				t.Errorf("%v", err)
			}
			if got := calls.Load(); got != c.calls {
				t.Errorf("%d calls, want %d", got, c.calls)
			}
		})
	}
}

// All calls are made, whichever of them are refused, a limited number at the same time. The error is the same for any order of the
// calls.
func TestAttemptAll(t *testing.T) {
	pods := corev1.Resource("pods")
	stale, forbidden, later := apierrors.NewConflict(pods, "a", nil), apierrors.NewForbidden(pods, "b", nil), apierrors.NewBadRequest("later")
	failed, late := denial(http.StatusInternalServerError), denial(http.StatusGatewayTimeout)
	for name, c := range map[string]struct {
		failed map[int]error
		want   error
	}{
		"none":                   {},
		"the first":              {map[int]error{0: forbidden}, forbidden},
		"two":                    {map[int]error{7: forbidden, 60: later}, forbidden},
		"denied like a failure":  {map[int]error{0: failed}, failed},
		"denied like a timeout":  {map[int]error{0: late}, late},
		"a stale cache":          {map[int]error{3: stale}, stale},
		"a stale cache, and not": {map[int]error{3: stale, 4: forbidden}, forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := make([]int, 100)
				for i := range all {
					all[i] = i
				}
				var calls, now, most atomic.Int32
				err := AttemptAll(all, func(one int) error {
					n := now.Add(1)
					defer now.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					calls.Add(1)
					time.Sleep(time.Duration(100-one) * time.Second)
					return c.failed[one]
				})
				if !errors.Is(err, c.want) || calls.Load() != 100 || most.Load() != concurrency {
					t.Errorf("%d calls, %d at once, %v", calls.Load(), most.Load(), err)
				}
			})
		})
	}
}

// Once a request has no answer, no further one is sent: 500 of them would take minutes.
func TestAttemptAllEndsWithoutAnAnswer(t *testing.T) {
	unread := fmt.Errorf("look for the pod: %w", apierrors.NewForbidden(corev1.Resource("pods"), "a", nil))
	for name, err := range map[string]error{
		"no status":                              errors.New("connection reset"),
		"a webhook that does not answer":         apierrors.NewInternalError(errors.New("context deadline exceeded")),
		"a timeout":                              apierrors.NewTimeoutError("no answer", 1),
		"nor to the request for the outcome":     fmt.Errorf("delete a pod: %w", errors.Join(errors.New("connection reset"), unread)),
		"with an answer about the outcome (nil)": errors.Join(errors.New("connection reset"), nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var calls atomic.Int32
				got := AttemptAll(make([]int, 500), func(int) error {
					calls.Add(1)
					time.Sleep(10 * time.Second)
					return err
				})
				if took := time.Since(begun); !errors.Is(got, err) || calls.Load() != concurrency || took != 10*time.Second {
					t.Errorf("%d calls in %s: %v", calls.Load(), took, got)
				}
			})
		})
	}
}
