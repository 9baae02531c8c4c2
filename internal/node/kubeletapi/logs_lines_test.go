package kubeletapi

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The API server accepts any positive number of seconds: more than a duration can have means all lines.
func TestSinceAnyNumberOfSeconds(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	lines := []LogLine{{At: now.Add(-time.Hour), Text: "old\n"}, {At: now.Add(-time.Minute), Text: "new\n"}}
	for seconds, want := range map[int64]string{1: "", 90: "new\n", 7200: "old\nnew\n", 9_300_000_000: "old\nnew\n", math.MaxInt64: "old\nnew\n"} {
		if got := SelectLines(lines, &corev1.PodLogOptions{SinceSeconds: &seconds}, now); got != want {
			t.Errorf("%d seconds: %q, want %q", seconds, got, want)
		}
	}
}
