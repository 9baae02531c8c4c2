package cri

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestTroubleIsToldWhenItLasts checks that volumes that cannot be updated cause a warning if that lasts, but not if the
// pod is gone.
func TestTroubleIsToldWhenItLasts(t *testing.T) {
	var out strings.Builder
	r := newFake().open(t, t.TempDir())
	r.log = slog.New(slog.NewTextHandler(&out, nil))
	pod := aPod()
	r.Update(pod)
	for i, want := range []int{0, 1, 1} {
		if r.report(t.Context(), pod, errors.New("no")); strings.Count(out.String(), "\n") != want {
			t.Errorf("after %d times: %s", i+1, out.String())
		}
	}
	r.report(t.Context(), pod, nil)
	r.report(t.Context(), pod, errors.New("no"))
	r.drop(pod.UID)
	r.report(t.Context(), pod, errors.New("no"))
	if strings.Count(out.String(), "\n") != 1 || len(r.troubles) != 0 {
		t.Errorf("of a pod that is gone: %s, %v", out.String(), r.troubles)
	}
}
