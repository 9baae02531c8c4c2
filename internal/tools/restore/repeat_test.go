package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
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

// everySeconds returns the times of so many requests.
func everySeconds(seconds, requests int) []time.Duration {
	times := make([]time.Duration, requests)
	for n := range times {
		times[n] = time.Duration(n*seconds) * time.Second
	}
	return times
}

// A busy server is asked again for an object at the times that it names, and the report has its answer in the end.
func TestBusyServerDelaysAnUndo(t *testing.T) {
	for name, test := range map[string]struct {
		putOff  func(nth int) (code, seconds int)
		until   time.Duration // when the undo has to end; 0 for its own bounds
		writes  []time.Duration
		why     string
		isOther bool // the undo has not created the object
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
			writes: everySeconds(7, 18), why: "too many requests",
		},
		"as long as priority and fairness names": {
			putOff: func(nth int) (code, seconds int) {
				if nth < 4 {
					return http.StatusTooManyRequests, 32
				}
				return 0, 0
			},
			writes: everySeconds(32, 4),
		},
		"until the undo has to end": {
			putOff: func(int) (code, seconds int) { return http.StatusTooManyRequests, 7 },
			until:  30 * time.Second, writes: everySeconds(7, 5), why: "too many requests",
		},
		"after it was unavailable": {
			putOff: func(nth int) (code, seconds int) {
				if nth == 1 {
					return http.StatusServiceUnavailable, 50
				}
				return http.StatusTooManyRequests, 50
			},
			writes: everySeconds(50, 3), why: "an earlier try may have been made: the server is currently unable to handle the request",
		},
		"and had created the object": {
			putOff: func(nth int) (code, seconds int) {
				if nth == 1 {
					return http.StatusServiceUnavailable, 5
				}
				return http.StatusConflict, 0
			},
			writes: everySeconds(5, 2), why: "this undo may have created that object, as the server has answered the server is currently unable",
		},
		"while another has created the object": {
			putOff: func(nth int) (code, seconds int) {
				if nth == 1 {
					return http.StatusTooManyRequests, 5
				}
				return http.StatusConflict, 0
			},
			writes: everySeconds(5, 2), why: "another object has its name", isOther: true,
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
				run := &Run{Server: server, Kinds: kinds}
				if test.until > 0 {
					run.Until = time.Now().Add(test.until)
				}
				if err := run.Run(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(cluster.writes, test.writes) {
					t.Errorf("requests after %v, want %v", cluster.writes, test.writes)
				}
				report := plan.Report()
				if got := report.Objects[0]; (got.Outcome == undo.Made) != (test.why == "") || !strings.Contains(got.Why, test.why) || test.isOther && strings.Contains(got.Why, "this undo") {
					t.Errorf("%s", report)
				}
			})
		})
	}
}

// crowded is a server in the process that puts off the first tries of each object.
type crowded struct {
	tries int

	mu    sync.Mutex
	tried map[string]int // guarded by mu; by the name of the object
}

// RoundTrip implements http.RoundTripper.
func (c *crowded) RoundTrip(r *http.Request) (*http.Response, error) {
	var o metav1.PartialObjectMetadata
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.tried[o.Name]++
	nth := c.tried[o.Name]
	c.mu.Unlock()
	cluster := &clusterWithoutSocket{began: time.Now(), putOff: func(int) (code, seconds int) {
		if nth > c.tries {
			return 0, 0
		}
		return http.StatusTooManyRequests, 25
	}}
	return cluster.RoundTrip(r)
}

// An undo of many objects ends some minutes after the server has begun to put off all writes, and not some minutes later for
// each object. A server that accepts some writes gets the time for all.
func TestBusyServerDelaysAWholeUndo(t *testing.T) {
	for name, test := range map[string]struct {
		tries   int
		seconds int // that the undo takes
		made    int
	}{
		"to the end":         {1000, 300, 0},
		"for each first try": {1, 325, 400}, // 13 times 32 objects
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, err := NewServer(&rest.Config{Host: "http://server", Transport: &crowded{tries: test.tries, tried: map[string]int{}}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				kept := secrets(400)
				kinds := map[schema.GroupKind]undo.Kind{{Kind: "Secret"}: {Resource: kept[0].Resource, Namespaced: true}, {Kind: "Namespace"}: {}}
				existing := map[undo.Place]undo.Existing{{Kind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"}: {UID: "shop"}}
				plan := undo.New(kept, undo.Cluster{Kinds: kinds, Existing: existing}, undo.Options{})
				began := time.Now()
				if err := (&Run{Server: server, Kinds: kinds}).Run(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
				if made := len(kept) - plan.Report().Missing(); made != test.made || time.Since(began) != time.Duration(test.seconds)*time.Second {
					t.Errorf("%d objects are made after %s", made, time.Since(began))
				}
			})
		})
	}
}

// A server has more time while it is busy than for a new kind, and none for an answer that is final.
func TestPatienceOfAnUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := func(code int32, reason metav1.StatusReason) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
		}
		busy, unserved := status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), status(http.StatusNotFound, metav1.StatusReasonNotFound)
		run := &Run{}
		expect := func(err error, since, want time.Duration) {
			t.Helper()
			if got := run.patience(err, since); got != want {
				t.Errorf("%v after %s: %s, want %s", err, since, got, want)
			}
		}
		expect(unserved, 10*time.Second, 20*time.Second)
		expect(status(http.StatusForbidden, metav1.StatusReasonForbidden), 0, 0)
		expect(busy, 30*time.Second, 90*time.Second)
		run.answered(busy)
		time.Sleep(4 * time.Minute)
		run.answered(busy)
		expect(busy, 0, time.Minute)
		expect(unserved, 0, servedWithin)
		for _, undecided := range []error{
			errors.New("connection refused"), io.EOF, context.DeadlineExceeded, unserved,
			status(http.StatusInternalServerError, metav1.StatusReasonInternalError), status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized),
		} {
			run.answered(undecided)
			expect(busy, 0, time.Minute)
		}
		for _, decided := range []error{nil, status(http.StatusForbidden, metav1.StatusReasonForbidden), status(http.StatusConflict, metav1.StatusReasonAlreadyExists)} {
			run.answered(busy)
			run.answered(decided)
			expect(busy, 0, busyWithin)
		}
		if left := Patience(run.patience).Until(time.Now().Add(time.Second))(busy, 0); left != time.Second {
			t.Errorf("until the end: %s", left)
		}
	})
}

// The error of a repeated write has the last answer, and an earlier one in doubt.
func TestEarlierAnswerIsNotLost(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
	}
	busy, slow := status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "busy"), status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "slow")
	missing := status(http.StatusNotFound, metav1.StatusReasonNotFound, "missing")
	for name, test := range map[string]struct {
		answers []error
		want    string // the error
		is      func(error) bool
		inDoubt bool
	}{
		"busy":                {[]error{busy}, "busy", apierrors.IsTooManyRequests, false},
		"slow":                {[]error{slow}, "slow", apierrors.IsTimeout, true},
		"slow, then busy":     {[]error{slow, busy}, "busy; an earlier try may have been made: slow", apierrors.IsTooManyRequests, true},
		"slow, busy, missing": {[]error{slow, busy, missing}, "missing; an earlier try may have been made: slow", apierrors.IsNotFound, true},
		"busy, then missing":  {[]error{busy, missing}, "missing", apierrors.IsNotFound, false},
		"busy, then slow":     {[]error{busy, slow}, "slow", apierrors.IsTimeout, true},
		"no answer":           {[]error{io.ErrUnexpectedEOF}, "unexpected EOF", func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := Repeat(t.Context(), WhilePutOff(time.Minute), func() error {
					tries++
					return test.answers[min(tries, len(test.answers))-1]
				})
				if err == nil || err.Error() != test.want || !test.is(err) || IsInDoubt(err) != test.inDoubt {
					t.Errorf("%v, in doubt: %t; want %q", err, IsInDoubt(err), test.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		answers := []error{slow, nil}
		err := Repeat(t.Context(), WhilePutOff(time.Minute), func() (err error) {
			err, answers = answers[0], answers[1:]
			return err
		})
		if err != nil || IsInDoubt(nil) {
			t.Errorf("after a success: %v", err)
		}
		if err := Repeat(t.Context(), nil, func() error { return busy }); err != busy || len(answers) != 0 { //nolint:errorlint // the same error
			t.Errorf("without patience: %v", err)
		}
	})
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
		o, err := (&Run{Server: server}).patch(t.Context(), objects, "s-0", []byte("{}"))
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
		err := Repeat(ctx, WhilePutOff(time.Hour), func() error {
			writes++
			cancel()
			return test.err
		})
		if err != test.err || writes != 1 { //nolint:errorlint // the same error
			t.Errorf("%v after %d writes, want %v", err, writes, test.err)
		}
	}
}

// busy is a server in the process that puts off each request.
type busy struct {
	seconds  int
	requests int
}

// RoundTrip implements http.RoundTripper.
func (b *busy) RoundTrip(*http.Request) (*http.Response, error) {
	b.requests++
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", fmt.Sprint(b.seconds))
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = fmt.Fprintln(w, "Too many requests")
	return w.Result(), nil
}

// A read that the server puts off is repeated at the times that the server names, but not if it would wait for long: a wrong time
// would hold up the command for hours.
func TestReadsAreNotPutOffForLong(t *testing.T) {
	for seconds, want := range map[int]int{1: 11, 32: 11, 33: 1, 3600: 1, 3_000_000_000: 1} {
		synctest.Test(t, func(t *testing.T) {
			server := &busy{seconds: seconds}
			s, err := NewServer(&rest.Config{Host: "http://cluster", Transport: server}, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("shop").Get(t.Context(), "s", metav1.GetOptions{})
			if !apierrors.IsTooManyRequests(err) || server.requests != want {
				t.Errorf("%d s: requests: %d, want %d; %v", seconds, server.requests, want, err)
			}
		})
	}
}
