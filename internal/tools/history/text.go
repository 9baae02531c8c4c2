package history

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Text returns an explanation for people; ages are those at now.
func (x *Explanation) Text(now time.Time) string {
	var text strings.Builder
	x.write(&text, 0, now)
	return text.String()
}

func (x *Explanation) write(text *strings.Builder, depth int, now time.Time) {
	line(text, depth, "%s: gone", x.Object)
	for n := range x.Causes {
		x.Causes[n].write(text, depth+1, now)
	}
}

func (c *Cause) write(text *strings.Builder, depth int, now time.Time) {
	says := c.Says
	if c.Uncertain {
		says = "perhaps: " + says
	}
	line(text, depth, "%s, %s ago (%s)", says, duration.HumanDuration(now.Sub(c.Time)), c.Time.UTC().Format(time.RFC3339Nano))
	for _, e := range c.Evidence {
		line(text, depth+1, "because %s", e)
	}
	for n := range c.Because {
		c.Because[n].write(text, depth+1, now)
	}
}

func line(text *strings.Builder, depth int, format string, args ...any) {
	text.WriteString(strings.Repeat("  ", depth))
	text.WriteString(escape.Sprintf(format, args...) + "\n")
}
