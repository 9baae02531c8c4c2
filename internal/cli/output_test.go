package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/undo"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// answerTime is the time of the answers in these tests, and every time in them.
var answerTime = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// values are the values of enumerated types. Other strings are texts, which an object or a server may have chosen.
var values = map[reflect.Type][]string{
	reflect.TypeFor[preview.Fate]():         {"Deleted", "Waiting", "Detached", "Kept", "Unknown"},
	reflect.TypeFor[preview.Actor]():        {"User", "Collector", "NamespaceController", "Server", "Node", "PodGarbageCollector", "JobController", "ProtectionController"},
	reflect.TypeFor[preview.Reason]():       {"Finalizer", "Dependents", "Contents", "Discovery", "Barrier", "Users", "Node"},
	reflect.TypeFor[cascade.State]():        {"Waiting", "Gone", "Stuck", "TimedOut"},
	reflect.TypeFor[finalizerowner.State](): {"Alive", "Leaving", "Unknown", "Gone", "ScaledToZero", "NotReady", "Silent", "Forbidden"},
	reflect.TypeFor[undo.Outcome]():         {"Made", "MadeBefore", "Remade", "Exists", "Terminating", "Occupied", "LeftOut", "Failed"},
	reflect.TypeFor[report.Answer]():        {"done", "unknown", "observed"},
	reflect.TypeFor[audit.Code]():           {string(audit.Rules()[0].Code), string(audit.Rules()[1].Code)}, // other codes have no suggestion
}

// filler fills values: each text is text, and enumerated types take turns through their values, from choice on.
type filler struct {
	text   string
	choice int
}

// filled returns a value of a type with every field set.
func filled[T any](f *filler) T {
	var value T
	f.fill(reflect.ValueOf(&value).Elem(), 0)
	return value
}

func (f *filler) fill(v reflect.Value, depth int) {
	if depth > 8 {
		return // explanations contain explanations
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(answerTime))
		return
	case v.Kind() == reflect.String:
		f.choice++
		v.SetString(f.text)
		if known := values[v.Type()]; len(known) > 0 && (f.choice%7 != 0 || v.Type() == reflect.TypeFor[audit.Code]()) {
			v.SetString(known[f.choice%len(known)])
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		f.choice++
		v.SetBool(f.choice%2 == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(2)
	case reflect.Uint64:
		v.SetUint(2)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0), depth+1)
		f.fill(v.Index(1), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth+1)
			}
		}
	default: // others have no text
	}
}

// output is a command, in one format, that prints text from a cluster.
type output struct {
	name  string
	print func(f *filler, s Streams) error
}

// outputs returns all commands that print text from a cluster, in all formats.
func outputs() []output {
	all := []output{
		{"status", func(f *filler, s Streams) error { return writeStatus(s.Out, filled[api.SeenStatus](f)) }},
		{"records", func(f *filler, s Streams) error { return writeRecords(s.Out, filled[[]report.Record](f)) }},
		{"records --watch", func(f *filler, s Streams) error { return writeRecord(s.Out, "table", filled[report.Record](f)) }},
		{"stories", func(f *filler, s Streams) error { return writeStories(s.Out, filled[[]story.Summary](f), answerTime) }},
		{"stories ID", func(f *filler, s Streams) error {
			summary := filled[story.Summary](f)
			_, err := io.WriteString(s.Out, summary.Text(filled[[]story.Object](f), answerTime))
			return err
		}},
		{"explain", func(f *filler, s Streams) error {
			x := filled[explain.Explanation](f)
			return explained{text: x.Text(answerTime)}.print(s.Out, "text")
		}},
		{"explain --all", func(f *filler, s Streams) error {
			return explainedGroups(filled[[]explain.Group](f), answerTime).print(s.Out, "text")
		}},
		{"explain of a deleted object", func(f *filler, s Streams) error {
			x := filled[history.Explanation](f)
			return explained{text: x.Text(answerTime)}.print(s.Out, "text")
		}},
		{"wait", func(f *filler, s Streams) error {
			p := &waitPrinter{format: "text", s: s}
			if err := p.progress(filled[cascade.Report](f)); err != nil {
				return err
			}
			return p.result(filled[cascade.Report](f))
		}},
		{"protect list", func(f *filler, s Streams) error { return writeProtected(s.Out, filled[[]protectedObject](f), nil) }},
		{"delete of a changed cluster", func(f *filler, s Streams) error {
			now := filled[preview.Report](f)
			before := filled[preview.Report](f)
			before.Digest += "of before"
			printChanges(s.Err, before, now)
			return nil
		}},
		{"what was not read", func(f *filler, s Streams) error {
			printUnread(s.Err, inventory.TextsOf(filled[[]inventory.Unread](f)))
			printUnread(s.Err, filled[[]string](f))
			return nil
		}},
	}
	for _, format := range []string{"table", "json", "name", "tree", "dot", "svg"} {
		all = append(all, output{"preview -o " + format, func(f *filler, s Streams) error {
			text, err := (&prediction{report: filled[preview.Report](f)}).encode(format)
			_, _ = s.Out.Write(text)
			return err
		}})
	}
	for _, format := range insight.Formats() {
		all = append(all, output{"graph -o " + format, func(f *filler, s Streams) error {
			g := filled[insight.Graph](f)
			for i := range g.Objects { // absent owners have the UID in the reference of a dependent
				g.Objects[i].UID = ownership.UID(fmt.Sprint(i, f.text))
			}
			g.References[0].Owner, g.References[0].Dependent = g.Objects[0].UID, g.Objects[1].UID
			g.References = g.References[:1]
			text, err := g.Encode(insight.Format(format))
			_, _ = s.Out.Write(text)
			return err
		}})
	}
	for _, format := range []string{"table", "json", "sarif", "junit"} {
		all = append(all, output{"audit -o " + format, func(f *filler, s Streams) error {
			text, err := filled[audit.Report](f).Encode(format)
			_, _ = s.Out.Write(text)
			return err
		}})
	}
	for _, format := range []string{"table", "json", "name"} {
		all = append(all, output{"undo -o " + format, func(f *filler, s Streams) error { return printUndo(s, format, filled[undo.Report](f)) }})
	}
	for _, format := range []string{"text", "json"} {
		all = append(all, output{"up --log-format=" + format, func(f *filler, s Streams) error {
			log, err := newLogger(ended(), s.Err, "info", format)
			if err != nil {
				return err
			}
			log.With("of", f.text).Warn(f.text, "name", f.text, "error", errors.New(f.text), "object", story.Ref{Kind: f.text, Name: f.text}, f.text, []string{f.text}) // libraries format messages
			log.WithGroup(f.text).Warn("a group", "name", []byte(f.text))
			return nil
		}})
	}
	return all
}

// ended returns a context that has ended, so that the log of libraries, which is global, is off.
func ended() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}

// printed returns the output of a command on a terminal if every text of its answer is the given one.
func printed(t *testing.T, o output, text string, choice int) string {
	t.Helper()
	var out bytes.Buffer
	if err := o.print(&filler{text: text, choice: choice}, Streams{Out: &out, Err: &out}.shown()); err != nil {
		t.Fatalf("%s: %v", o.name, err)
	}
	return out.String()
}

// checkOutput fails the test if a text in some field controls the terminal, or begins a line.
func checkOutput(t *testing.T, o output, text string, choice int) {
	t.Helper()
	got := printed(t, o, text, choice)
	if strings.ContainsFunc(got, escape.Controls) || !utf8.ValidString(got) {
		t.Errorf("coppice %s controls the terminal:\n%q", o.name, got)
	}
	if strings.HasSuffix(o.name, "svg") && strings.Contains(got, "<script>") {
		t.Errorf("coppice %s has a script:\n%s", o.name, got)
	}
	if want := printed(t, o, "plain", choice); strings.Count(got, "\n") != strings.Count(want, "\n") {
		t.Errorf("coppice %s has %d lines with %q in its fields, %d with a plain text:\n%s", o.name, strings.Count(got, "\n"), text, strings.Count(want, "\n"), got)
	}
}

// hostileTexts returns texts that control a terminal, or begin a line, a column or a page, also for text/tabwriter.
func hostileTexts() []string {
	return []string{
		"a\nPod shop/db: deleted\n", "a\r\nb", "a\rb", "a\x1b]0;PWN\x07b\x1b[2J", "a\u202eb", "a\u009b31mb", "a\x9b31m",
		"a\tb\vc\fd", "a\u2028b\u2029", "\n", "a\"]\nb --> c", "</text>\n<script>", "x;id\n$(id)`id`",
	}
}

// No field of an answer begins a line of a command's output, or controls the terminal.
func TestFieldsStayInTheirLines(t *testing.T) {
	for _, o := range outputs() {
		printsText := false
		for choice := range 8 {
			for _, text := range hostileTexts() {
				checkOutput(t, o, text, choice)
			}
			printsText = printsText || strings.Contains(printed(t, o, "plain", choice), "plain")
		}
		if !printsText {
			t.Errorf("coppice %s prints none of the texts", o.name)
		}
	}
}

// FuzzFields checks the output with random texts.
func FuzzFields(f *testing.F) {
	for choice, text := range hostileTexts() {
		f.Add(text, choice)
	}
	f.Fuzz(func(t *testing.T, text string, choice int) {
		if text == "" {
			return // empty texts are left out
		}
		for _, o := range outputs() {
			checkOutput(t, o, text, max(0, choice%1000))
		}
	})
}
