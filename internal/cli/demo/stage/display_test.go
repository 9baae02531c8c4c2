package stage

import (
	"bytes"
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cli/demo"
)

// screenOf returns the lines of a terminal after it has received text, including lines that have scrolled off
// the top. A line wider than the terminal takes two lines.
func screenOf(t *testing.T, text string, columns, lines int) []string {
	t.Helper()
	screen, row, column := []string{""}, 0, 0
	down := func() {
		column = 0
		if row++; row == len(screen) {
			screen = append(screen, "")
		}
	}
	for _, token := range regexp.MustCompile(`\x1b\[\d*[A-Z]|\x1b\[\d*m|\r|\n|[^\x1b\r\n]`).FindAllString(text, -1) {
		switch {
		case token == "\r":
			column = 0
		case token == "\n":
			down()
		case strings.HasSuffix(token, "A"):
			n, err := strconv.Atoi(token[2 : len(token)-1])
			if err != nil {
				t.Fatal(err)
			}
			// The cursor cannot move to lines that have scrolled off the top.
			row = max(row-n, len(screen)-lines, 0)
		case token == clearDown:
			screen = screen[:row+1]
			screen[row] = string([]rune(screen[row])[:column])
		case strings.HasPrefix(token, "\x1b"): // colors
		default:
			if column == columns {
				down()
			}
			line := []rune(screen[row])
			screen[row] = string(append(line[:column], []rune(token)...))
			column++
		}
	}
	return screen
}

func tty(out *bytes.Buffer, columns, lines int) *Terminal {
	return &Terminal{Out: out, Size: func() (int, int) { return columns, lines }}
}

func pod(name, standing string) demo.Object {
	return demo.Object{Kind: "Pod", Name: name, UID: "a", State: standing}
}

// TestTreeInPlace: the tree is always last, and shown only once, below the lines of Say.
func TestTreeInPlace(t *testing.T) {
	var out bytes.Buffer
	d, v := tty(&out, 80, 24), demo.NewView()
	see := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(strings.Join(want, "\n")+"\n", strings.Join(screenOf(t, out.String(), 80, 24), "\n")); diff != "" {
			t.Error(diff)
		}
	}
	d.Say("first", "of two\n")
	see("first", "of two")
	d.Change(v.Put(pod("a", "Pending")), v)
	see("first", "of two", "Pod/a  Pending")
	d.Change(v.Put(pod("a", "Running")), v)
	see("first", "of two", "Pod/a  Running")
	other := demo.Object{Kind: "Pod", Name: "b", UID: "b", State: "Running"}
	d.Change(v.Put(other), v)
	d.Say("✓ two", "lines")
	see("first", "of two", "✓ two", "lines", "Pod/a  Running", "Pod/b  Running")
	d.Change(v.Remove(other), v)
	see("first", "of two", "✓ two", "lines", "Pod/a  Running")
	d.Leave()
	d.Say("the next")
	see("first", "of two", "✓ two", "lines", "Pod/a  Running", "the next")
	before := out.Len()
	d.Change("", v)
	if out.Len() != before {
		t.Error("it draws although nothing has changed")
	}
}

// TestTreeFitsTheScreen: a tree that is wider or higher than the screen is replaced completely
// when it changes.
func TestTreeFitsTheScreen(t *testing.T) {
	var out bytes.Buffer
	d, v := tty(&out, 20, 6), demo.NewView()
	d.Say("said")
	for name := range strings.SplitSeq("abcdefgh", "") {
		o := demo.Object{Kind: "Pod", Name: "long-name-" + name, UID: types.UID(name), State: "Running"}
		d.Change(v.Put(o), v)
	}
	want := []string{"said", "Pod/long-name-a  R…", "Pod/long-name-b  R…", "Pod/long-name-c  R…", "Pod/long-name-d  R…", ""}
	if diff := cmp.Diff(want, screenOf(t, out.String(), 20, 6)); diff != "" {
		t.Error(diff)
	}
}

func TestLinesAreCutAtTheWidth(t *testing.T) {
	for _, c := range []struct {
		line    string
		columns int
		want    string
	}{{"├─ a", 4, "├─ a"}, {"├─ ab", 4, "├─ …"}, {"abc", 0, "abc"}, {"abc", 1, "…"}} {
		if got := cut(c.line, c.columns); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.line, c.columns, got, c.want)
		}
	}
}

func TestPlainDisplayPrintsOneLineForEachChange(t *testing.T) {
	var out bytes.Buffer
	d, v := Plain{&out}, demo.NewView()
	d.Say("one", "two\n")
	d.Change(v.Put(pod("a", "Pending")), v)
	d.Change(v.Put(pod("a", "Pending")), v)
	d.Pause(t.Context())
	if want := "one\ntwo\n    + Pod/a  Pending\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestPauseEndsWithTheDemo: Ctrl-C does not wait for a reader.
func TestPauseEndsWithTheDemo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	(&Terminal{PauseTime: time.Hour}).Pause(ctx)
}
