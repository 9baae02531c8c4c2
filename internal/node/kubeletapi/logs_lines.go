package kubeletapi

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// LogLine is a line that a container has written.
type LogLine struct {
	At   time.Time
	Text string // including its newline
}

// SelectLines returns the text of the lines that the options ask for, in order.
func SelectLines(lines []LogLine, o *corev1.PodLogOptions, now time.Time) string {
	since := time.Time{}
	switch {
	case o.SinceTime != nil:
		since = o.SinceTime.Time
	case o.SinceSeconds != nil:
		since = now.Add(-pods.Seconds(*o.SinceSeconds))
	}
	lines = slices.DeleteFunc(slices.Clone(lines), func(l LogLine) bool { return l.At.Before(since) })
	if o.TailLines != nil {
		lines = lines[max(0, int64(len(lines))-*o.TailLines):]
	}
	var text strings.Builder
	for _, l := range lines {
		if o.Timestamps {
			text.WriteString(l.At.UTC().Format(time.RFC3339Nano) + " ")
		}
		text.WriteString(l.Text)
	}
	if all := text.String(); o.LimitBytes == nil || int64(len(all)) <= *o.LimitBytes {
		return all
	}
	return text.String()[:*o.LimitBytes]
}
