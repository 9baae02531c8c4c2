package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

func waitReport(state cascade.State, left int, says string) cascade.Report {
	r := cascade.Report{State: state, Left: left, Gone: 1, Roots: []explain.Ref{{Kind: "Namespace", Name: "shop"}}}
	if says != "" {
		pod := explain.Ref{Kind: "Pod", Namespace: "shop", Name: "web"}
		r.Causes = []explain.Group{{Leaf: explain.Wait{On: explain.OnFinalizer, State: explain.Stuck, Finalizer: says, Says: says}, Objects: []explain.Ref{pod}}}
	}
	return r
}

// The progress is printed when it changes: as text on stderr, else in lines or documents on stdout. The result is on
// stdout.
func TestWaitPrintsChanges(t *testing.T) {
	history := []cascade.Report{
		waitReport(cascade.Waiting, 2, "first"), waitReport(cascade.Waiting, 1, "first"), waitReport(cascade.Waiting, 1, "second"),
		waitReport(cascade.Waiting, 0, ""),
	}
	for _, test := range []struct {
		format    string
		out, errs int // lines, or documents
		says      string
	}{
		{"text", 1, 4, "Namespace shop: gone, objects in all: 1"},
		{"json", 3, 0, `"state":"Gone"`},
		{"yaml", 3, 0, "state: Gone"},
	} {
		var out, errs bytes.Buffer
		p := &waitPrinter{format: test.format, s: Streams{Out: &out, Err: &errs}}
		for _, r := range history {
			if err := p.progress(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.result(waitReport(cascade.Gone, 0, "")); err != nil {
			t.Fatal(err)
		}
		count := strings.Count(out.String(), "\n")
		if test.format == "yaml" {
			count = strings.Count(out.String(), "---\n")
		}
		if count != test.out || strings.Count(errs.String(), "\n") != test.errs || !strings.Contains(out.String(), test.says) {
			t.Errorf("-o %s prints\n%s\nand on stderr\n%s", test.format, out.String(), errs.String())
		}
	}
}

// Each end of a wait has its exit code.
func TestWaitHasExitCodes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx   context.Context // of the command
		state cascade.State
		err   error
		code  int
		says  string
	}{
		{t.Context(), cascade.Gone, nil, ExitOK, ""},
		{t.Context(), cascade.Stuck, nil, ExitStuck, "until somebody acts"},
		{t.Context(), cascade.TimedOut, nil, ExitTimedOut, "timed out after 1m0s, objects left: 2"},
		{ctx, cascade.Waiting, ctx.Err(), ExitFailed, "interrupted, objects left: 2; the deletion goes on"},
	} {
		err := endOf(test.ctx, waitReport(test.state, 2, ""), test.err, time.Minute)
		if code := exitCodeOf(err); code != test.code || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: exit code %d and %v, want %d and %q", test.state, code, err, test.code, test.says)
		}
	}
}
