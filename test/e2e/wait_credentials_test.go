package e2e

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	question "github.com/coppice-dev/coppice/internal/tools/ask"
	progress "github.com/coppice-dev/coppice/internal/tools/cascade"
)

// expiring is a connection to a server that does not accept the credentials while isExpired.
type expiring struct {
	http.RoundTripper

	isExpired *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (e expiring) RoundTrip(r *http.Request) (*http.Response, error) {
	if !e.isExpired.Load() {
		return e.RoundTripper.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusUnauthorized, Status: "401 Unauthorized", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")),
	}, nil
}

// A wait goes on after an answer that the credentials are not accepted, and ends after three in a row.
func TestWaitEndsWhenCredentialsExpire(t *testing.T) {
	t.Parallel()
	c := newWaitCase(t)
	c.object(t, "ConfigMap", "held", []any{previewHold})
	c.remove(t, "ConfigMap", "held", metav1.DeletePropagationBackground)
	var isExpired atomic.Bool
	config := rest.CopyConfig(c.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return expiring{next, &isExpired} })
	now := time.Now() // stays, so that the deletion is not stuck for 5 seconds
	sources := question.Sources{Config: config, Namespace: c.namespace, Now: func() time.Time { return now }}
	readings, unread := 0, 0
	report, err := sources.Wait(t.Context(), question.Ending{Args: []string{"configmap/held"}}, func(r progress.Report) error {
		readings++
		if len(r.Unread) > 0 {
			unread++
		}
		isExpired.Store(readings != 2) // the second reading, after which the third one succeeds
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "does not accept the credentials any more, objects left: 1") || report.State != progress.Waiting {
		t.Errorf("the wait ends with %v and the state %s", err, report.State)
	}
	if readings != 5 || unread != 3 {
		t.Errorf("%d reports, %d of them without a reading; want 5 and 3", readings, unread)
	}
}
