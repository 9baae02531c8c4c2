package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestDailyTranscript runs the commands of a user's day, and compares the output literally. Each file of
// testdata/daily is a session with a control plane of its own; the kubectl is the built-in one, so
// that the output is that of one version.
//
//	go test ./test/e2e -run TestDailyTranscript -rewrite
//
// writes down the current output: read the difference before you commit it.
//
// What differs from run to run is replaced: ages, UIDs, times, ports, versions.
func TestDailyTranscript(t *testing.T) {
	files, err := filepath.Glob("testdata/daily/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "run":
					return s.run(t, d.Input)
				case "eventually":
					return s.eventually(t, d)
				default:
					d.Fatalf(t, "unknown directive %s", d.Cmd)
					return ""
				}
			})
		})
	}
}

// session is a shell in which kubectl is ours.
type session struct {
	plane *plane
	path  string // directories of programs
}

func newSession(t *testing.T) *session {
	t.Helper()
	programs := t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s kubectl \"$@\"\n", binary)
	if err := os.WriteFile(filepath.Join(programs, "kubectl"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	return &session{startPlane(t, "--ephemeral", "--secure-port=0", byHand, noNodes), programs + ":" + filepath.Dir(binary) + ":" + os.Getenv("PATH")}
}

// run runs lines of shell and returns their output, with the exit status if it is not 0.
func (s *session) run(t *testing.T, lines string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", lines)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.plane.kubeconfig, "PATH="+s.path, "LC_ALL=C", "TZ=UTC")
	out, err := command.CombinedOutput()
	text := steady(string(out), s.plane)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Sprintf("%sexit status %d\n", text, exit.ExitCode())
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// eventually repeats the lines until they print what is expected.
func (s *session) eventually(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var got string
	eventually.Agrees(t, func() string {
		if got = s.run(t, d.Input); d.Rewrite || strings.TrimSpace(got) == strings.TrimSpace(d.Expected) {
			return ""
		}
		return fmt.Sprintf("%s: %s prints\n%s", d.Pos, d.Input, got)
	})
	return got
}

// replacements replace what differs between runs. They are applied in this order.
var replacements = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?m)^I\d{4} .*very short watch.*\n`), ""}, // kubectl's log, if its time limit ends a watch early
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "<time>"},
	{regexp.MustCompile(`resourceVersion: "\d+"`), `resourceVersion: "<revision>"`},
	{regexp.MustCompile(`"resourceVersion": ?"\d+"`), `"resourceVersion":"<revision>"`},
	{regexp.MustCompile(`(?m)(^|\s)(\d+[dhm])?\d+(\.\d+)?m?s( ago)?(\s|$)`), "$1<age>$5"},
	{regexp.MustCompile(`v\d+\.\d+\.\d+\S*`), "<version>"},
	{regexp.MustCompile(`/tmp/\S+`), "<path>"},
	{regexp.MustCompile(`(?m)[ \t]+$`), ""},
	{regexp.MustCompile(`(\S)  +`), "$1   "}, // columns are as wide as their contents
}

func steady(text string, p *plane) string {
	text = strings.ReplaceAll(text, p.server, "<server>")
	for _, r := range replacements {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}
