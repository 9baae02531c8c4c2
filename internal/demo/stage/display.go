package stage

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coppice-dev/coppice/internal/demo"
)

// Plain writes a line per change, for a file or another program.
type Plain struct{ Out io.Writer }

// Say implements Display.
func (d Plain) Say(lines ...string) {
	for _, line := range lines {
		_, _ = fmt.Fprintln(d.Out, strings.TrimRight(line, "\n")) // who does not read it misses nothing else
	}
}

// Change implements Display.
func (d Plain) Change(line string, _ *demo.View) {
	if line != "" {
		_, _ = fmt.Fprintln(d.Out, "    "+line)
	}
}

// Pause implements Display: nobody reads along.
func (Plain) Pause(context.Context) {}

// Terminal draws the tree in place, below what has been said. Only one goroutine may use it.
type Terminal struct {
	Out io.Writer
	// Size is how many columns and lines there are.
	Size func() (columns, lines int)
	// Rest is how long a reader is given.
	Rest time.Duration

	tree  []demo.Line
	drawn int // lines of the tree on the screen, above the cursor
}

// The sequences that a terminal understands (ECMA-48).
const (
	upLines   = "\x1b[%dA"
	clearDown = "\x1b[J"
	reset     = "\x1b[0m"
	bold      = "\x1b[1m"
	dim       = "\x1b[2m"
	red       = "\x1b[31m"
	green     = "\x1b[32m"
	yellow    = "\x1b[33m"
)

// Say implements Display: the lines go where the tree was, and the tree below.
func (d *Terminal) Say(lines ...string) {
	var said strings.Builder
	for _, line := range lines {
		said.WriteString(paint(strings.TrimRight(line, "\n")) + "\n")
	}
	d.draw(said.String())
}

// Change implements Display.
func (d *Terminal) Change(line string, v *demo.View) {
	if line == "" {
		return
	}
	d.tree = v.Tree()
	d.draw("")
}

// Leave lets the tree stand, and begins anew below it.
func (d *Terminal) Leave() { d.tree, d.drawn = nil, 0 }

// Pause implements Display.
func (d *Terminal) Pause(ctx context.Context) {
	rest := time.NewTimer(d.Rest)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
}

// draw replaces the tree on the screen by what is said and the tree as it is now, in one
// write, so that it does not flicker. A line that is wider than the screen would be two,
// and a tree that is higher could not be taken back: both are cut.
func (d *Terminal) draw(said string) {
	columns, lines := d.Size()
	text := demo.Text(d.tree)
	moods := d.tree
	if room := max(lines-2, 1); len(text) > room {
		text, moods = text[:room], moods[:room]
	}
	var b strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&b, upLines, d.drawn)
	}
	b.WriteString("\r" + clearDown + said)
	for i, line := range text {
		b.WriteString(color(moods[i].Mood) + cut(line, columns-1) + reset + "\n")
	}
	d.drawn = len(text)
	_, _ = io.WriteString(d.Out, b.String()) // a terminal that is gone shows nothing
}

// paint gives a line that was said its color.
func paint(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return bold + line + reset
	case strings.HasPrefix(line, "✓ "):
		return green + line + reset
	}
	return line
}

func color(m demo.Mood) string {
	switch m {
	case demo.Leaving:
		return red
	case demo.Trouble:
		return yellow
	case demo.Calm:
	}
	return dim
}

// cut shortens a line to so many columns.
func cut(line string, columns int) string {
	if columns < 1 || utf8.RuneCountInString(line) <= columns {
		return line
	}
	runes := []rune(line)
	return string(runes[:columns-1]) + "…"
}
