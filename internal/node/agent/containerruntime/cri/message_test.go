package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// TestTerminationMessages checks that the message of a failed container is its own or, if its policy says so, the end
// of its log.
func TestTerminationMessages(t *testing.T) {
	var log, tail strings.Builder
	for i := range 100 {
		fmt.Fprintf(&log, "2026-01-02T03:04:05.000000000Z stdout F line %d\n", i)
		if i >= 20 {
			fmt.Fprintf(&tail, "line %d\n", i)
		}
	}
	long := "2026-01-02T03:04:05.000000000Z stderr F " + strings.Repeat("x", 3000) + "y\n"
	fallback := string(corev1.TerminationMessageFallbackToLogsOnError)
	for name, test := range map[string]struct {
		instance lifecycle.Instance
		policy   string
		written  string
		log      string
		want     string
	}{
		"the last lines":            {lifecycle.Instance{ExitCode: 1}, fallback, "", log.String(), tail.String()},
		"the last bytes":            {lifecycle.Instance{ExitCode: 1}, fallback, "", long, strings.Repeat("x", 2046) + "y\n"},
		"its own message":           {lifecycle.Instance{ExitCode: 1}, fallback, "mine", log.String(), "mine"},
		"the end of its own":        {lifecycle.Instance{ExitCode: 1}, fallback, strings.Repeat("a", 10) + strings.Repeat("b", 4096), "", strings.Repeat("b", 4096)},
		"after the runtime's":       {lifecycle.Instance{ExitCode: 1, Message: "killed"}, fallback, "mine", "", "killed: mine"},
		"another policy":            {lifecycle.Instance{ExitCode: 1}, "File", "", log.String(), ""},
		"made by an earlier agent":  {lifecycle.Instance{ExitCode: 1}, "", "", log.String(), ""},
		"it has succeeded":          {lifecycle.Instance{}, fallback, "", log.String(), ""},
		"it could not be run":       {lifecycle.Instance{ExitCode: 128, Reason: cannotRun}, fallback, "", log.String(), ""},
		"it has no log":             {lifecycle.Instance{ExitCode: 1}, fallback, "", "", ""},
		"it is not valid as a text": {lifecycle.Instance{ExitCode: 1}, fallback, "a\xff", "", "a\uFFFD"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFake().open(t, t.TempDir())
			i := test.instance
			i.ID, i.Container, i.Finished = "fake://1", "c", time.Now()
			for path, text := range map[string]string{r.store.log("u", "c", 0): test.log, r.store.message("u", "c", 0): test.written} {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r.addMessage(t.Context(), "u", &i, map[string]string{annotationMessagePolicy: test.policy})
			if i.Message != test.want {
				t.Errorf("the message is %q, want %q", i.Message, test.want)
			}
		})
	}
}
