package explain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Text returns an explanation for people; ages are those at now.
func (x *Explanation) Text(now time.Time) string {
	p := printer{now: now}
	p.line(0, "%s: %s%s", x.Object, strings.ToLower(string(x.State)), p.age(", deleted %s ago", x.Deleted))
	p.waits(1, x.Waits)
	if x.More > 0 {
		p.line(1, "and %d more", x.More)
	}
	for _, u := range x.Unseen {
		p.line(0, "not seen: %s", u)
	}
	return p.text.String()
}

// TextOf returns groups for people, as Text does.
func TextOf(groups []Group, now time.Time) string {
	p := printer{now: now}
	for n := range groups {
		g := &groups[n]
		p.line(0, "%s%s: %s", strings.ToLower(string(g.Leaf.State)), p.age(" for %s", g.Leaf.Since), g.Leaf.Says)
		names := make([]string, 0, maxShown)
		for _, o := range g.Objects[:min(len(g.Objects), maxShown)] {
			names = append(names, o.String())
		}
		p.line(1, "%s: %s", counted(len(g.Objects)+g.More, "object"), strings.Join(names, ", "))
		if more := len(g.Objects) + g.More - len(names); more > 0 {
			p.line(1, "and %d more", more)
		}
		p.leaf(1, &g.Leaf)
	}
	return p.text.String()
}

// Outline returns the parts of waits that do not change with time alone: two explanations with the same outline have
// the same meaning.
func Outline(waits []Wait) string {
	var text strings.Builder
	for n := range waits {
		w := &waits[n]
		fmt.Fprintf(&text, "%s %s %s %v %d+%d (%s)\n", w.On, w.State, w.Finalizer, w.Object, len(w.Waits), w.More, Outline(w.Waits))
	}
	return text.String()
}

type printer struct {
	text strings.Builder
	now  time.Time
}

func (p *printer) line(depth int, format string, args ...any) {
	p.text.WriteString(strings.Repeat("  ", depth))
	p.text.WriteString(escape.Sprintf(format, args...) + "\n")
}

// age returns a text with the time since t, or none if that is not known.
func (p *printer) age(format string, t *time.Time) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(format, duration.HumanDuration(p.now.Sub(*t)))
}

func (p *printer) waits(depth int, waits []Wait) {
	for n := range waits {
		w := &waits[n]
		p.line(depth, "%s: %s", strings.ToLower(string(w.State)), w.Says)
		if len(w.Waits) == 0 {
			p.leaf(depth+1, w)
		}
		p.waits(depth+1, w.Waits)
		if w.More > 0 {
			p.line(depth+1, "and %d more", w.More)
		}
	}
}

// leaf prints the evidence for a wait, and the next steps.
func (p *printer) leaf(depth int, w *Wait) {
	if w.ServedBy != nil {
		for _, e := range w.ServedBy.Evidence {
			p.line(depth, "because %s", e)
		}
	}
	for _, s := range w.Next {
		p.line(depth, "next: %s", s.Says)
		if s.Command != "" {
			p.line(depth, "  %s", s.Command)
		}
	}
}
