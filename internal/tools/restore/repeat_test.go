package restore

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// clusterWithoutSocket is a server in the process that has the namespace shop, and puts off writes.
type clusterWithoutSocket struct {
	putOff func(nth int) (code, seconds int) // 0 for a write that is made
	writes []time.Duration                   // since the beginning
	began  time.Time
}

// RoundTrip implements http.RoundTripper.
func (c *clusterWithoutSocket) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodGet {
		c.writes = append(c.writes, time.Since(c.began))
		if code, seconds := c.putOff(len(c.writes)); code != 0 {
			w.Header().Set("Retry-After", fmt.Sprint(seconds))
			w.Header().Set("Content-Type", "text/plain") // as priority and fairness answers
			w.WriteHeader(code)
			_, _ = fmt.Fprintln(w, "Too many requests")
			return w.Result(), nil
		}
	}
	_, _ = fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": "s-0", "uid": "new"}}`)
	return w.Result(), nil
}

// A busy server is asked again for an object at the times that it names, and the report has its answer in the end.
func TestBusyServerDelaysAnUndo(t *testing.T) {
	for name, test := range map[string]struct {
		putOff func(nth int) (code, seconds int)
		writes []time.Duration
		why    string
	}{
		"for a while": {
			putOff: func(nth int) (code, seconds int) {
				if nth < 3 {
					return http.StatusTooManyRequests, 5
				}
				return 0, 0
			},
			writes: []time.Duration{0, 5 * time.Second, 10 * time.Second},
		},
		"to the end": {
			putOff: func(int) (code, seconds int) { return http.StatusTooManyRequests, 7 },
			writes: []time.Duration{0, 7 * time.Second, 14 * time.Second, 21 * time.Second, 28 * time.Second},
			why:    "too many requests",
		},
		"for a day": {
			putOff: func(int) (code, seconds int) { return http.StatusServiceUnavailable, 86400 },
			writes: []time.Duration{0}, why: "unable to handle the request",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := &clusterWithoutSocket{putOff: test.putOff, began: time.Now()}
				server, err := NewServer(&rest.Config{Host: "http://server", Transport: cluster}, nil)
				if err != nil {
					t.Fatal(err)
				}
				kept := secrets(1)
				kinds := map[schema.GroupKind]undo.Kind{{Kind: "Secret"}: {Resource: kept[0].Resource, Namespaced: true}, {Kind: "Namespace"}: {}}
				existing := map[undo.Place]undo.Existing{{Kind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"}: {UID: "shop"}}
				plan := undo.New(kept, undo.Cluster{Kinds: kinds, Existing: existing}, undo.Options{})
				if err := (&Run{Server: server, Kinds: kinds}).Run(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(cluster.writes, test.writes) {
					t.Errorf("requests after %v, want %v", cluster.writes, test.writes)
				}
				report := plan.Report()
				if got := report.Objects[0]; (got.Outcome == undo.Made) != (test.why == "") || !strings.Contains(got.Why, test.why) {
					t.Errorf("%s", report)
				}
			})
		})
	}
}

// The second writes to objects are repeated, too: here a patch.
func TestBusyServerDelaysAPatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := &clusterWithoutSocket{began: time.Now()}
		cluster.putOff = func(nth int) (code, seconds int) {
			if nth < 3 {
				return http.StatusTooManyRequests, 5
			}
			return 0, 0
		}
		server, err := NewServer(&rest.Config{Host: "http://server", Transport: cluster}, nil)
		if err != nil {
			t.Fatal(err)
		}
		objects := server.dynamic.Resource(secrets(1)[0].Resource).Namespace("shop")
		o, err := patch(t.Context(), objects, "s-0", []byte("{}"))
		if err != nil || o.GetUID() != "new" || len(cluster.writes) != 3 || time.Since(cluster.began) != 10*time.Second {
			t.Errorf("requests after %v: %v", cluster.writes, err)
		}
	})
}

// An answer puts off a write if the same write may succeed without anybody's action, and no webhook has denied it. The end of
// the context is the end of the repeats, and not the answer.
func TestAnswersThatPutOffAWrite(t *testing.T) {
	webhook := `admission webhook "keep.example.com" denied the request: not now`
	status := func(code int32, reason metav1.StatusReason, message string, seconds int32) error {
		return fmt.Errorf("write: %w", &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
		}})
	}
	for _, test := range []struct {
		err      error
		want     bool
		creation bool // a creation is repeated
	}{
		{status(429, metav1.StatusReasonTooManyRequests, "busy", 1), true, true},
		{status(429, metav1.StatusReasonTooManyRequests, webhook, 1), false, false},
		{status(500, metav1.StatusReasonServerTimeout, "no leader", 0), true, true},
		{status(500, metav1.StatusReasonInternalError, "broken", 0), false, false},
		{status(500, metav1.StatusReasonInternalError, "broken", 1), true, true},
		{status(502, metav1.StatusReasonInternalError, "no server", 0), true, false},
		{status(503, metav1.StatusReasonServiceUnavailable, "down", 0), true, true},
		{status(503, metav1.StatusReasonServiceUnavailable, webhook, 0), false, false},
		{status(504, metav1.StatusReasonTimeout, "slow", 0), true, false},
		{status(504, metav1.StatusReasonTimeout, "slow", 2), true, true},
		{status(404, metav1.StatusReasonNotFound, "not served", 0), false, true},
		{status(409, metav1.StatusReasonConflict, "changed", 0), false, false},
		{context.DeadlineExceeded, false, false},
		{nil, false, false},
	} {
		if got, creation := IsPutOff(test.err), isLater(test.err); got != test.want || creation != test.creation {
			t.Errorf("%v: %t, and for a creation %t", test.err, got, creation)
		}
		ctx, cancel := context.WithCancel(t.Context())
		writes := 0
		err := Repeat(ctx, time.Hour, IsPutOff, func() error {
			writes++
			cancel()
			return test.err
		})
		if err != test.err || writes != 1 { //nolint:errorlint // the same error
			t.Errorf("%v after %d writes, want %v", err, writes, test.err)
		}
	}
}
