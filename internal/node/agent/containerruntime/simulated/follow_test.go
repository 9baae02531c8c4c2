package simulated_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// TestFollowedLogHasEachLineWhenItIsWritten checks that a followed log has each line when it is written, and that it ends with the instance, with its
// reader, or with the requested number of bytes.
func TestFollowedLogHasEachLineWhenItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, aPod("exit-after", "10s", "exit-after-times", "1"))
		follow := func(o corev1.PodLogOptions) (log io.ReadCloser, text func() string) {
			t.Helper()
			o.Container, o.Follow = "c", true
			log, err := n.runtime.Logs(t.Context(), n.pod, &o)
			if err != nil {
				t.Fatal(err)
			}
			read := &transcript.Transcript{} // a timer of the bubble wakes the writer while the test reads
			go func() {
				_, _ = io.Copy(read, log)
				_, _ = io.WriteString(read, "(end)")
			}()
			return log, func() string {
				synctest.Wait()
				return read.String()
			}
		}
		const started = "simulated: container c started, attempt 0\n"
		_, whole := follow(corev1.PodLogOptions{})
		_, stamped := follow(corev1.PodLogOptions{Timestamps: true, TailLines: new(int64(0))})
		_, short := follow(corev1.PodLogOptions{LimitBytes: new(int64(len(started)) + 4)})
		closed, left := follow(corev1.PodLogOptions{})
		if got := whole(); got != started {
			t.Errorf("at first: %q", got)
		}
		closed.Close()
		if got := left(); got != started+"(end)" {
			t.Errorf("closed: %q", got)
		}
		n.passes(10 * time.Second)
		if got, want := whole(), started+"simulated: exit code 0\n(end)"; got != want {
			t.Errorf("after the exit: %q, want %q", got, want)
		}
		if got, want := stamped(), "2000-01-01T00:00:10Z simulated: exit code 0\n(end)"; got != want {
			t.Errorf("with timestamps: %q, want %q", got, want)
		}
		if got, want := short(), started+"simu(end)"; got != want {
			t.Errorf("with a limit: %q, want %q", got, want)
		}
		_, next := follow(corev1.PodLogOptions{})
		n.runtime.Do(t.Context(), n.pod, lifecycle.RemoveSandbox{}, func(error) {})
		if got, want := next(), "simulated: container c started, attempt 1\n(end)"; got != want {
			t.Errorf("of a pod that was removed: %q, want %q", got, want)
		}
	})
}
