package stage

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coppice-dev/coppice/internal/cli/demo"
	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Plain writes a line per change, for a file or another program.
type Plain struct{ Out io.Writer }

// Say implements Display.
func (d Plain) Say(lines ...string) {
	for _, line := range lines {
		_, _ = fmt.Fprintln(d.Out, strings.TrimRight(line, "\n")) // output that cannot be written is lost
	}
}

// Change implements Display.
func (d Plain) Change(line string, _ *demo.View) {
	if line != "" {
		_, _ = fmt.Fprintln(d.Out, "    "+escape.Line(line))
	}
}

// Pause implements Display. There is no reader to wait for.
func (Plain) Pause(context.Context) {}

// Terminal draws the tree in place, below the lines of Say. It is not safe for concurrent
// use.
type Terminal struct {
	Out io.Writer
	// Size returns the size of the terminal.
	Size func() (columns, lines int)
	// PauseTime is the duration of a Pause.
	PauseTime time.Duration

	tree  []demo.Line
	drawn int // lines of the tree on the screen, above the cursor
}

// Terminal control sequences (ECMA-48).
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

// Say implements Display. The lines replace the tree, which is redrawn below them.
func (d *Terminal) Say(lines ...string) {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(paint(escape.Text(strings.TrimRight(line, "\n"))) + "\n")
	}
	d.draw(text.String())
}

// Change implements Display.
func (d *Terminal) Change(line string, v *demo.View) {
	if line == "" {
		return
	}
	d.tree = v.Tree()
	d.draw("")
}

// Leave keeps the tree on the screen, and starts a new one below it.
func (d *Terminal) Leave() { d.tree, d.drawn = nil, 0 }

// Pause implements Display.
func (d *Terminal) Pause(ctx context.Context) {
	rest := time.NewTimer(d.PauseTime)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
}

// draw replaces the tree on the screen with the new lines and the current tree, in one write
// so that it does not flicker. Lines wider than the screen would wrap, and a tree higher than
// the screen could not be replaced, so both are cut.
func (d *Terminal) draw(above string) {
	columns, lines := d.Size()
	text := demo.Text(d.tree)
	shown := d.tree
	if most := max(lines-2, 1); len(text) > most {
		text, shown = text[:most], shown[:most]
	}
	var b strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&b, upLines, d.drawn)
	}
	b.WriteString("\r" + clearDown + above)
	for i, line := range text {
		b.WriteString(color(shown[i].Emphasis) + cut(escape.Line(line), columns-1) + reset + "\n")
	}
	d.drawn = len(text)
	_, _ = io.WriteString(d.Out, b.String()) // output that cannot be written is lost
}

// paint colors a line by its prefix.
func paint(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return bold + line + reset
	case strings.HasPrefix(line, "✓ "):
		return green + line + reset
	}
	return line
}

func color(m demo.Emphasis) string {
	switch m {
	case demo.Deleting:
		return red
	case demo.Problem:
		return yellow
	case demo.Normal:
	}
	return dim
}

// cut shortens a line to a number of columns.
func cut(line string, columns int) string {
	if columns < 1 || utf8.RuneCountInString(line) <= columns {
		return line
	}
	runes := []rune(line)
	return string(runes[:columns-1]) + "…"
}
