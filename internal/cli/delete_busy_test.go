package cli

import (
	"bytes"
	"context"
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

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// inBubble is a transport to a handler without a socket, so that tests run on fake time.
type inBubble struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (b inBubble) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	b.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

const (
	deletedAnswer   = `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`
	confirmedAnswer = `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": "u", "resourceVersion": "2"}}`
)

// objectText returns the metadata of an object with a UID, in a version.
func objectText(uid string, version int) string {
	return fmt.Sprintf(`{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": %q, "resourceVersion": "%d"}}`, uid, version)
}

// isDecided reports whether an error says what became of a write.
func isDecided(err error) bool { return err != nil && !errors.Is(err, errUnanswered) }

// scripted answers the requests of a method, one after the other; the last answer counts for the rest.
type scripted struct {
	answers map[string][]string
	asked   []string // the methods, and the seconds since the beginning
	began   time.Time
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, fmt.Sprintf("%s %d", r.Method, int(time.Since(s.began).Seconds())))
	rest := s.answers[r.Method]
	if len(rest) > 1 {
		s.answers[r.Method] = rest[1:]
	}
	code, seconds, text := http.StatusOK, 0, rest[0]
	if _, err := fmt.Sscanf(text, "%d after %d", &code, &seconds); err == nil {
		reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 429: metav1.StatusReasonTooManyRequests, 503: metav1.StatusReasonServiceUnavailable}[code]
		text = statusText(code, reason, seconds)
		if code == http.StatusNotFound {
			text = strings.Replace(text, `"details": {`, `"details": {"name": "a", `, 1)
		}
	}
	if strings.Contains(text, "Forbidden") {
		code = http.StatusForbidden
	}
	w.Header().Set("Content-Type", "application/json")
	if seconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(seconds))
	}
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// coppice delete asks a busy server again, at the times that the server names. In the end, or after Ctrl-C, the user gets the
// answer of the server, which says that the object is not deleted.
func TestBusyServerIsAskedForABoundedTime(t *testing.T) {
	needs := fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "details": {"causes": [{"reason": %q}]}}`, protection.UnconfirmedCause)
	for name, test := range map[string]struct {
		answers   map[string][]string
		interrupt time.Duration
		asked     []string
		want      string // the line about the object, or a part of the error
		is        func(error) bool
	}{
		"for a while": {
			answers: map[string][]string{"DELETE": {"429 after 7", "429 after 7", deletedAnswer}},
			asked:   []string{"DELETE 0", "DELETE 7", "DELETE 14"}, want: "configmaps/a deleted",
		},
		"to the end": {
			answers: map[string][]string{"DELETE": {"429 after 25"}},
			asked:   []string{"DELETE 0", "DELETE 25", "DELETE 50"}, want: "configmaps/a is not deleted, the server is busy: not now", is: apierrors.IsTooManyRequests,
		},
		"for a day": {
			answers: map[string][]string{"DELETE": {"429 after 86400"}},
			asked:   []string{"DELETE 0"}, want: "configmaps/a is not deleted", is: apierrors.IsTooManyRequests,
		},
		"Ctrl-C": {
			answers: map[string][]string{"DELETE": {"429 after 7"}}, interrupt: 10 * time.Second,
			asked: []string{"DELETE 0", "DELETE 7"}, want: "configmaps/a is not deleted", is: apierrors.IsTooManyRequests,
		},
		"deleted although it is unavailable": {
			answers: map[string][]string{"DELETE": {"503 after 7", "404 after 0"}, "GET": {"404 after 0"}},
			asked:   []string{"DELETE 0", "DELETE 7", "GET 7"}, want: "configmaps/a is gone already",
		},
		"unavailable to the end": {
			answers: map[string][]string{"DELETE": {"503 after 40"}},
			asked:   []string{"DELETE 0", "DELETE 40"}, want: errUnanswered.Error() + ": not now", is: apierrors.IsServiceUnavailable,
		},
		"unavailable, then busy to the end": {
			answers: map[string][]string{"DELETE": {"503 after 20", "429 after 25"}},
			asked:   []string{"DELETE 0", "DELETE 20", "DELETE 45"}, want: errUnanswered.Error() + ": not now; an earlier try may have been made: not now", is: apierrors.IsTooManyRequests,
		},
		"unavailable, then refused": {
			answers: map[string][]string{"DELETE": {"503 after 20", `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden"}`}},
			asked:   []string{"DELETE 0", "DELETE 20"}, want: errUnanswered.Error(), is: apierrors.IsForbidden,
		},
		"deleted although it is unavailable, and replaced": {
			answers: map[string][]string{"DELETE": {"503 after 7", "409 after 0"}, "GET": {objectText("v", 2)}},
			asked:   []string{"DELETE 0", "DELETE 7", "GET 7"}, want: "configmaps/a is gone already",
		},
		"unavailable, and changed": {
			answers: map[string][]string{"DELETE": {"503 after 7", "409 after 0"}, "GET": {objectText("u", 2)}},
			asked:   []string{"DELETE 0", "DELETE 7", "GET 7"}, want: "configmaps/a has changed since it was read, and is not deleted: not now", is: isDecided,
		},
		"unavailable, and in conflict": {
			answers: map[string][]string{"DELETE": {"503 after 7", "409 after 0"}, "GET": {objectText("u", 1)}},
			asked:   []string{"DELETE 0", "DELETE 7", "GET 7"}, want: errUnanswered.Error(), is: apierrors.IsConflict,
		},
		"unavailable, and unread": {
			answers: map[string][]string{"DELETE": {"503 after 7", "409 after 0"}, "GET": {"403 after 0"}},
			asked:   []string{"DELETE 0", "DELETE 7", "GET 7"}, want: errUnanswered.Error(), is: apierrors.IsConflict,
		},
		"changed, and unread": {
			answers: map[string][]string{"DELETE": {"409 after 0"}, "GET": {"403 after 0"}},
			asked:   []string{"DELETE 0", "GET 0"}, want: "configmaps/a has changed since it was read, and is not deleted", is: isDecided,
		},
		"while it is confirmed": {
			answers: map[string][]string{"DELETE": {needs, "429 after 5", deletedAnswer}, "PATCH": {"429 after 7", confirmedAnswer}},
			asked:   []string{"DELETE 0", "PATCH 0", "PATCH 7", "DELETE 7", "DELETE 12"}, want: "configmaps/a deleted",
		},
		"never confirmed": {
			answers: map[string][]string{"DELETE": {needs}, "PATCH": {"429 after 50"}},
			asked:   []string{"DELETE 0", "PATCH 0", "PATCH 50"}, want: "configmaps/a is not deleted: confirm the deletion: not now", is: apierrors.IsTooManyRequests,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &scripted{answers: test.answers, began: time.Now()}
				client, err := clientWithoutRepeats(&rest.Config{Host: "http://server", Transport: inBubble{server}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.interrupt > 0 {
					defer time.AfterFunc(test.interrupt, cancel).Stop()
				}
				line, err := prediction{policy: metav1.DeletePropagationBackground, patience: restore.WhilePutOff(busyTimeout)}.delete(ctx, client, configMap("a"))
				if (err == nil) != (line == test.want) || err != nil && (test.is == nil || !test.is(err) || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%q, %v; want %q", line, err, test.want)
				}
				if !slices.Equal(server.asked, test.asked) {
					t.Errorf("requests: %q, want %q", server.asked, test.asked)
				}
			})
		})
	}
}

// A server that puts off the label is asked again, and it counts as written if it was written all the same.
func TestLabelIsWrittenOnABusyServer(t *testing.T) {
	labelled := func(label string) string {
		return fmt.Sprintf(`{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": "u", "resourceVersion": "1", "labels": {%q: %q}}}`, protection.Label, label)
	}
	for name, test := range map[string]struct {
		answers map[string][]string
		asked   []string
		want    error
	}{
		"busy": {
			answers: map[string][]string{"GET": {labelled("")}, "PATCH": {"429 after 7", labelled("unused")}},
			asked:   []string{"GET 0", "PATCH 0", "PATCH 7"},
		},
		"written although the server is unavailable": {
			answers: map[string][]string{"GET": {labelled(""), labelled("unused")}, "PATCH": {"503 after 7", "409 after 0"}},
			asked:   []string{"GET 0", "PATCH 0", "PATCH 7", "GET 7"},
		},
		"labelled by somebody else meanwhile": {
			answers: map[string][]string{"GET": {labelled(""), labelled("always")}, "PATCH": {"503 after 7", "409 after 0"}},
			asked:   []string{"GET 0", "PATCH 0", "PATCH 7", "GET 7"}, want: errRelabelled,
		},
		"written although the server is unavailable, and then busy to the end": {
			answers: map[string][]string{"GET": {labelled("")}, "PATCH": {"503 after 20", "429 after 25"}},
			asked:   []string{"GET 0", "PATCH 0", "PATCH 20", "PATCH 45"}, want: errUnanswered,
		},
		"written although the server is unavailable, and then unread": {
			answers: map[string][]string{"GET": {labelled(""), "403 after 0"}, "PATCH": {"503 after 7", "409 after 0"}},
			asked:   []string{"GET 0", "PATCH 0", "PATCH 7", "GET 7"}, want: errUnanswered,
		},
		"changed all the time": {
			answers: map[string][]string{"GET": {labelled("")}, "PATCH": {"409 after 0"}},
			asked:   strings.Split(strings.Repeat("GET 0,PATCH 0,", protectTries-1)+"GET 0,PATCH 0", ","), want: errAlwaysChanges,
		},
		"changed all the time, and in the end perhaps written": {
			answers: map[string][]string{"GET": {labelled("")}, "PATCH": {"409 after 0", "409 after 0", "409 after 0", "409 after 0", "503 after 7", "409 after 0"}},
			asked:   strings.Split(strings.Repeat("GET 0,PATCH 0,", protectTries)+"PATCH 7", ","), want: errUnanswered,
		},
		"unavailable to the end": {
			answers: map[string][]string{"GET": {labelled("")}, "PATCH": {"503 after 40"}},
			asked:   []string{"GET 0", "PATCH 0", "PATCH 40"}, want: errUnanswered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &scripted{answers: test.answers, began: time.Now()}
				client, err := clientWithoutRepeats(&rest.Config{Host: "http://server", Transport: inBubble{server}})
				if err != nil {
					t.Fatal(err)
				}
				d := &unusedDeletion{client: client, target: configMap("a")}
				if err := d.relabel(t.Context(), "", "unused"); !errors.Is(err, test.want) || !slices.Equal(server.asked, test.asked) {
					t.Errorf("%v after %q, want %v after %q", err, server.asked, test.want, test.asked)
				}
			})
		})
	}
}

// unusedServer is a server of coppice up with the widget a, which nothing needs. It puts off the first DELETEs, and all creations.
type unusedServer struct {
	*wireserver.Server

	putOff func(nth int, w http.ResponseWriter) bool
	seen   func(r *http.Request) // before its answer, one at a time; nil for nothing
	began  time.Time

	mu      sync.Mutex
	deletes []time.Duration // guarded by mu while the command runs; since the beginning
}

func newUnusedServer() *unusedServer {
	s := &unusedServer{Server: wireserver.New(wireserver.Resource{Group: "example.com", Name: "widgets", Kind: "Widget"}), began: time.Now()}
	s.Put("namespaces", metav1.ObjectMeta{Name: "shop", UID: "shop"})
	s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a", Labels: map[string]string{protection.Label: string(protection.Unused)}})
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *unusedServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	if s.seen != nil {
		s.seen(r)
	}
	if r.Method == http.MethodDelete {
		s.deletes = append(s.deletes, time.Since(s.began))
	}
	nth := len(s.deletes)
	s.mu.Unlock()
	switch {
	case !strings.HasPrefix(r.URL.Path, "/api") && r.URL.Path != "/version":
		return inBubble{http.NotFoundHandler()}.RoundTrip(r) // it has no collector
	case r.URL.Path == "/version":
		return inBubble{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"gitVersion": "`+version.Kubernetes()+`"}`)
		})}.RoundTrip(r)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/widgets"):
		recorder := httptest.NewRecorder()
		agentBusy(recorder)
		return recorder.Result(), nil
	case r.Method == http.MethodDelete:
		recorder := httptest.NewRecorder()
		if s.putOff(nth, recorder) {
			return recorder.Result(), nil
		}
	case isContent(r):
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, r)
		whole := strings.NewReplacer("meta.k8s.io/v1", "example.com/v1", "PartialObjectMetadata", "Widget").Replace(recorder.Body.String())
		recorder.Body = bytes.NewBufferString(whole)
		return recorder.Result(), nil
	}
	return s.Server.RoundTrip(r)
}

// isContent reports whether a request reads a whole widget.
func isContent(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/widgets/") && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata")
}

// deleteUnused runs coppice delete widgets/a --when-unused.
func deleteUnused(t *testing.T, s http.RoundTripper, timeout time.Duration) (ran, error) {
	t.Helper()
	return deleteUnusedWith(t.Context(), t, s, deleteFlags{end: endFlags{timeout: timeout}}, "--max", "1")
}

// deleteUnusedWith is deleteUnused with flags.
func deleteUnusedWith(ctx context.Context, t *testing.T, s http.RoundTripper, f deleteFlags, flags ...string) (ran, error) {
	t.Helper()
	var out, errs bytes.Buffer
	c := &cobra.Command{}
	c.SetContext(ctx)
	f.add(c)
	f.unused.add(c)
	if err := c.ParseFlags(append([]string{"--server", "http://server", "--namespace", "shop", "--when-unused"}, flags...)); err != nil {
		t.Fatal(err)
	}
	f.cluster.kube.WrapConfigFn = func(config *rest.Config) *rest.Config {
		config.Transport = s
		return config
	}
	err := deleteWhenUnused(c, f, []string{"widgets/a"}, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return ran{out: out.String(), err: errs.String()}, err
}

// coppice delete --when-unused asks a server that puts off the DELETE again, at the time that the server names, after a new
// preview. If the object is gone then, the command has deleted it.
func TestUnusedObjectIsDeletedOnceTheServerAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		reason metav1.StatusReason
		gone   bool // the DELETE was made all the same
		writes int
		says   string // on stdout
	}{
		"busy":                       {http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, false, 2, "widgets.example.com/a deleted"},
		"without a leader":           {http.StatusInternalServerError, metav1.StatusReasonServerTimeout, false, 2, "widgets.example.com/a deleted"},
		"unavailable":                {http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, false, 2, "widgets.example.com/a deleted"},
		"too slow":                   {http.StatusGatewayTimeout, metav1.StatusReasonTimeout, false, 2, "widgets.example.com/a deleted"},
		"too slow, and it was done":  {http.StatusGatewayTimeout, metav1.StatusReasonTimeout, true, 1, "widgets.example.com/a is gone"},
		"no leader, and it was done": {http.StatusInternalServerError, metav1.StatusReasonServerTimeout, true, 1, "widgets.example.com/a is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			atHome(t)
			synctest.Test(t, func(t *testing.T) {
				const delay = 40
				s := newUnusedServer()
				s.putOff = func(nth int, w http.ResponseWriter) bool {
					if nth > 1 {
						return false
					}
					s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "a", Labels: map[string]string{protection.Label: string(protection.Unused), "new": "yes"}})
					if test.gone {
						s.Remove("widgets", "a")
					}
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Retry-After", fmt.Sprint(delay))
					w.WriteHeader(test.code)
					_, _ = io.WriteString(w, statusText(test.code, test.reason, delay))
					return true
				}
				got, err := deleteUnused(t, s, 0)
				if err != nil || !strings.Contains(got.out, test.says) || slices.Contains(s.UIDs("widgets"), types.UID("a")) {
					t.Errorf("%v\n%s%s", err, got.out, got.err)
				}
				if len(s.deletes) != test.writes || time.Since(s.began) < delay*time.Second || !strings.Contains(got.err, "the server is asked again: ") {
					t.Errorf("requests after %v, the end after %v\n%s", s.deletes, time.Since(s.began), got.err)
				}
			})
		})
	}
}

// The end of the time does not hide that the object may be deleted.
func TestUnansweredDeletionTimesOut(t *testing.T) {
	atHome(t)
	synctest.Test(t, func(t *testing.T) {
		s := newUnusedServer()
		s.putOff = func(_ int, w http.ResponseWriter) bool {
			http.Error(w, "no server is ready", http.StatusBadGateway)
			return true
		}
		got, err := deleteUnused(t, s, time.Hour)
		if err == nil || exitCodeOf(err) != ExitTimedOut || !strings.Contains(err.Error(), "timed out after 1h0m0s: ") || !strings.Contains(err.Error(), errUnanswered.Error()) {
			t.Errorf("%v\n%s%s", err, got.out, got.err)
		}
		if len(s.deletes) < 2 {
			t.Errorf("requests after %v", s.deletes)
		}
	})
}
