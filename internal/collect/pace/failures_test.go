package pace

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// logged returns a Failures and the lines that it has logged.
func logged() (f *Failures, lines func() []string) {
	var out strings.Builder
	f = NewFailures(slog.New(slog.NewTextHandler(&out, nil)), clock.RealClock{})
	return f, func() []string { return strings.Split(strings.TrimSpace(out.String()), "\n") }
}

// An object that fails ten times a second for an hour is logged at once, and then after silences that double. The
// lines count every failure.
func TestFailureIsLoggedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lines := logged()
		for range 36000 {
			f.Warn(t.Context(), "pod not scheduled", "n/web", errors.New("no"), "pod", "n/web")
			time.Sleep(100 * time.Millisecond)
		}
		got := lines()
		if len(got) != 6 || !strings.HasSuffix(got[0], "pod=n/web error=no") || !strings.HasSuffix(got[1], "repeated=599") || !strings.HasSuffix(got[2], "repeated=1199") {
			t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
		}
		time.Sleep(24 * time.Hour)
		f.Warn(t.Context(), "pod not scheduled", "n/web", errors.New("no"), "pod", "n/web")
		f.Warn(t.Context(), "pod not scheduled", "n/web", errors.New("no"), "pod", "n/web")
		if again := lines(); len(again) != 7 || strings.Contains(again[6], "repeated") {
			t.Errorf("a day later, %d lines:\n%s", len(again), strings.Join(again, "\n"))
		}
	})
}

// Another reason, another message and another object are logged at once, however the object is named in the error.
func TestOtherFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lines := logged()
		refused := func(name string) error {
			return fmt.Errorf("bind %s: %w", name, apierrors.NewForbidden(corev1.Resource("pods"), name, errors.New("quota 1")))
		}
		for range 10 {
			f.Warn(t.Context(), "pod not scheduled", "n/web", refused("web"))
			f.Warn(t.Context(), "pod not scheduled", "n/web", apierrors.NewServiceUnavailable("no leader"))
			f.Warn(t.Context(), "pod not removed", "n/web", refused("web"))
			f.Warn(t.Context(), "pod not scheduled", "n/db", refused("db"))
			f.Warn(t.Context(), "namespace not emptied", "n", fmt.Errorf("delete a-%d: %w", time.Now().Nanosecond(), apierrors.NewInternalError(errors.New("webhook"))))
			time.Sleep(time.Second + time.Nanosecond)
		}
		if got := lines(); len(got) != 5 {
			t.Errorf("%d lines, want 5:\n%s", len(got), strings.Join(got, "\n"))
		}
	})
}

// Many objects that fail for one reason take ten lines in a minute; a line counts the ones left out.
func TestFailuresForOneReasonAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lines := logged()
		for range 61 {
			for i := range 300 {
				name := fmt.Sprintf("p-%d", i)
				f.Warn(t.Context(), "pod not removed", "n/"+name, fmt.Errorf("remove pod n/%s: %w", name, apierrors.NewInternalError(errors.New("webhook is gone"))))
			}
			time.Sleep(time.Second)
		}
		got := lines()
		if len(got) != 20 || !strings.HasSuffix(got[10], "repeated=59 alike=290") {
			t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
		}
	})
}

// The kept failures are bounded in number and in bytes.
func TestKeptFailuresAreBounded(t *testing.T) {
	f := NewFailures(slog.New(slog.DiscardHandler), clock.RealClock{})
	for i := range 3 * mostFailures {
		text := strings.Repeat("x", i%100) + strings.Repeat(string(rune('a'+i%26)), 10000)
		f.Warn(t.Context(), "m", fmt.Sprint("o", i), errors.New(text))
	}
	if len(f.known) > mostFailures || len(f.reasons) > mostFailures {
		t.Errorf("%d failures and %d reasons are kept", len(f.known), len(f.reasons))
	}
	for what := range f.known {
		if len(what.reason) > longestReason+10 {
			t.Fatalf("a reason has %d bytes", len(what.reason))
		}
	}
}

// A webhook that answers with a megabyte, or an object with such a text, does not fill the log.
func TestFailureWithLongTextsIsCut(t *testing.T) {
	f, lines := logged()
	long := strings.Repeat("x", 1<<20)
	attributes := []any{"path", long}
	f.Warn(t.Context(), "not deleted", "n/web", errors.New(long), attributes...)
	if got := lines(); len(got) != 1 || len(got[0]) > 3*longestText || !strings.Contains(got[0], "(1048576 bytes)") || attributes[1] != long {
		t.Errorf("%d lines, the first of %d bytes", len(got), len(got[0]))
	}
}

// A routine failure is logged in the same way, at its own level.
func TestRoutineFailureIsInformation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lines := logged()
		for range 30 {
			f.Info(t.Context(), "probe failed", "n/web/main", errors.New("no"), "pod", "n/web")
			time.Sleep(time.Second)
		}
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "level=INFO") {
			t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
		}
	})
}
