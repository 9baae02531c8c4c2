package insight

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// maxDrawn limits the number of objects in a drawing: larger drawings are slow in browsers, and
// unreadable.
const maxDrawn = 5000

// maxBends limits the bends of all lines: a line has one in each column that it passes. A chain whose objects all
// have the same owner would otherwise need as many as the square of its length.
const maxBends = 50_000

// ErrTooLarge is the error of Encode for a graph that is too large to be drawn.
var ErrTooLarge = errors.New("too many objects to draw")

// Sizes in pixels.
const (
	margin     = 24.0
	heading    = 40.0
	legend     = 56.0
	minWidth   = 940.0 // width of the legend
	charWidth  = 7.1   // a little more than the mean width of a character at 12 px
	boxPadding = 12.0
	maxText    = 46 // characters in a line of a box; longer lines are cut in the middle
)

// style has a class for each phase and each standing.
const style = `
    text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; }
    .title { font-size: 15px; font-weight: 600; }
    .kind { font-size: 11px; fill: #52606d; }
    .state { font-size: 10px; font-weight: 600; text-anchor: end; fill: #52606d; }
    .note { font-size: 11px; fill: #52606d; }
    rect.object { stroke: #7b8794; stroke-width: 1; fill: #ffffff; }
    rect.terminating { fill: #eceff2; stroke: #52606d; }
    rect.foreground { fill: #fff3d6; stroke: #c77700; }
    rect.orphaning { fill: #efe7fb; stroke: #7045b8; }
    rect.missing { fill: #f7f8f9; stroke: #7b8794; stroke-dasharray: 4 3; }
    path.wire { fill: none; stroke: #7b8794; stroke-width: 1.2; }
    path.blocking { stroke-width: 2.4; }
    path.waiting { stroke: #c77700; }
    path.dangling { stroke: #c53030; stroke-dasharray: 5 4; }
    path.unverified, path.unmapped, path.misplaced { stroke: #9aa5b1; stroke-dasharray: 2 4; }
    path.head { fill: #7b8794; }
    path.head.waiting { fill: #c77700; }
    path.head.dangling { fill: #c53030; }
    path.head.unverified, path.head.unmapped, path.head.misplaced { fill: #9aa5b1; }
`

// writeSVG writes a drawing of the graph.
func (g Graph) writeSVG(w *bytes.Buffer) error {
	if len(g.Objects) > maxDrawn {
		return fmt.Errorf("%w: %d, at most %d: choose some by uid, or another format", ErrTooLarge, len(g.Objects), maxDrawn)
	}
	widths := make([]float64, len(g.Objects))
	for i := range g.Objects {
		widths[i] = boxWidth(&g.Objects[i])
	}
	place := g.places()
	edges := make([]edge, len(g.References))
	for i, r := range g.References {
		edges[i] = edge{owner: place[r.Owner], dependent: place[r.Dependent]}
	}
	if bends := bendsOf(len(g.Objects), edges); bends > maxBends {
		return fmt.Errorf("%w: their lines have %d bends, at most %d: choose fewer by uid, or another format", ErrTooLarge, bends, maxBends)
	}
	d := arrange(widths, edges)
	width, height := max(d.width+2*margin, minWidth), d.height+2*margin+heading+legend

	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s">`+"\n",
		number(width), number(height), number(width), number(height))
	fmt.Fprintf(w, "  <style>%s  </style>\n  <rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", style)
	fmt.Fprintf(w, `  <text class="title" x="%s" y="30">%s</text>`+"\n", number(margin), xmlText(g.title()))
	fmt.Fprintf(w, `  <g transform="translate(%s %s)">`+"\n", number(margin), number(margin+heading))
	for i, r := range g.References {
		writeLine(w, d.lines[i], r)
	}
	for i := range g.Objects {
		writeBox(w, d.boxes[i], &g.Objects[i])
	}
	w.WriteString("  </g>\n")
	writeLegend(w, height-legend)
	w.WriteString("</svg>\n")
	return nil
}

func (g Graph) title() string {
	missing := 0
	for i := range g.Objects {
		if g.Objects[i].Missing {
			missing++
		}
	}
	text := fmt.Sprintf("%s, %s", english.Plural(len(g.Objects)-missing, "object", ""), english.Plural(len(g.References), "owner reference", ""))
	if missing > 0 {
		text += fmt.Sprintf(", %s missing", english.Plural(missing, "owner", ""))
	}
	return text
}

// badge returns the state that is shown in the corner of a box.
func badge(o *Object) string {
	switch {
	case o.Missing:
		return "missing"
	case o.Phase == "active":
		return ""
	}
	return escape.Line(o.Phase)
}

func boxWidth(o *Object) float64 {
	first := len([]rune(shorten(o.kind())))
	if b := badge(o); b != "" {
		first += len(b) + 2
	}
	return 2*boxPadding + charWidth*float64(max(first, len([]rune(shorten(o.path())))))
}

// shorten cuts the middle out of a long string: names differ at their ends.
func shorten(text string) string {
	runes := []rune(text)
	if len(runes) <= maxText {
		return text
	}
	tail := maxText / 2
	return string(runes[:maxText-tail-1]) + "…" + string(runes[len(runes)-tail:])
}

func writeBox(w *bytes.Buffer, b box, o *Object) {
	class := o.Phase
	if o.Missing {
		class = "missing"
	}
	fmt.Fprintf(w, "    <g><title>%s</title>\n", xmlText(describe(o)))
	fmt.Fprintf(w, `      <rect class="object %s" x="%s" y="%s" width="%s" height="%s" rx="5"/>`+"\n",
		xmlText(escape.Line(class)), number(b.x), number(b.y-boxHeight/2), number(b.width), number(boxHeight))
	fmt.Fprintf(w, `      <text class="kind" x="%s" y="%s">%s</text>`, number(b.x+boxPadding), number(b.y-4), xmlText(shorten(o.kind())))
	if text := badge(o); text != "" {
		fmt.Fprintf(w, `<text class="state" x="%s" y="%s">%s</text>`, number(b.x+b.width-boxPadding), number(b.y-4), xmlText(text))
	}
	fmt.Fprintf(w, "\n"+`      <text x="%s" y="%s">%s</text></g>`+"\n", number(b.x+boxPadding), number(b.y+12), xmlText(shorten(o.path())))
}

// describe returns the tooltip of a box.
func describe(o *Object) string {
	lines := []string{o.kind() + " " + o.path(), "uid " + string(o.UID)}
	if len(o.Finalizers) > 0 {
		lines = append(lines, "finalizers: "+strings.Join(o.Finalizers, ", "))
	}
	if o.Decision != "" {
		lines = append(lines, o.Decision)
	}
	if o.Note != "" {
		lines = append(lines, o.Note)
	}
	for i := range lines {
		lines[i] = escape.Line(lines[i])
	}
	return strings.Join(lines, "\n")
}

// writeLine draws a reference; its arrow points at the owner.
func writeLine(w *bytes.Buffer, l line, r Reference) {
	class := "wire " + r.Standing
	if r.Blocking {
		class += " blocking"
	}
	tip, length := l.points[0], 8.0 // pointing left, to the owner's right edge
	switch {
	case r.Owner == r.Dependent:
		tip = l.points[2]
	case l.backward:
		tip, length = l.points[len(l.points)-1], -8
	}
	var path strings.Builder
	for i, p := range l.points {
		switch {
		case i == 0:
			fmt.Fprintf(&path, "M%s %s", number(p.x), number(p.y))
		case r.Owner == r.Dependent:
			if i == 1 {
				fmt.Fprintf(&path, "C%s %s %s %s %s %s", number(p.x), number(l.points[0].y), number(p.x), number(l.points[2].y), number(l.points[2].x), number(l.points[2].y))
			}
		case i%2 == 0: // straight through a column
			fmt.Fprintf(&path, "H%s", number(p.x))
		default:
			before := l.points[i-1]
			middle := (before.x + p.x) / 2
			fmt.Fprintf(&path, "C%s %s %s %s %s %s", number(middle), number(before.y), number(middle), number(p.y), number(p.x), number(p.y))
		}
	}
	words := r.Standing
	if r.Evidence != "" {
		words += ", evidence: " + r.Evidence
	}
	if r.Blocking {
		words += ", blocking"
	}
	fmt.Fprintf(w, `    <path class="%s" d="%s"><title>%s</title></path><path class="head %s" d="M%s %sl%s -3.5v7z"/>`+"\n",
		xmlText(escape.Line(class)), path.String(), xmlText(escape.Line(words)), xmlText(escape.Line(r.Standing)), number(tip.x), number(tip.y), number(length))
}

// writeLegend explains colours and lines.
func writeLegend(w *bytes.Buffer, top float64) {
	x := margin
	for _, phase := range []string{"active", "foreground", "orphaning", "terminating", "missing"} {
		fmt.Fprintf(w, `  <rect class="object %s" x="%s" y="%s" width="16" height="12" rx="2"/><text class="note" x="%s" y="%s">%s</text>`+"\n",
			phase, number(x), number(top+10), number(x+22), number(top+20), phase)
		x += 112
	}
	x = margin
	for _, line := range []struct{ class, words string }{
		{"solid", "the owner holds it"},
		{"waiting", "the owner waits for it"},
		{"dangling", "the owner is gone"},
		{"unverified", "not known"},
		{"solid blocking", "blocks the owner’s deletion"},
	} {
		fmt.Fprintf(w, `  <path class="wire %s" d="M%s %sh28"/><text class="note" x="%s" y="%s">%s</text>`+"\n",
			line.class, number(x), number(top+38), number(x+34), number(top+42), line.words)
		x += 50 + charWidth*float64(len([]rune(line.words)))
	}
}

// number formats a length with one decimal at most.
func number(f float64) string {
	return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64)
}

// xmlText escapes a string. Characters that XML does not allow become spaces.
func xmlText(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0xFFFE || r == 0xFFFF {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(clean)
}
