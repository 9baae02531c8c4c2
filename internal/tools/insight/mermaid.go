package insight

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// writeMermaid writes the graph as a Mermaid flowchart, which many wikis and code hosts draw: owners
// left, dependents right; blocking references are thick, and references that do not keep the dependent
// are dotted.
func (g Graph) writeMermaid(w *bytes.Buffer) {
	w.WriteString("flowchart LR\n")
	for i := range g.Objects {
		o := &g.Objects[i]
		fmt.Fprintf(w, "  o%d[\"%s<br/>%s\"]%s\n", i, mermaidText(o.kind()), mermaidText(o.path()), mermaidClass(o))
	}
	places := g.places()
	for _, r := range g.References {
		fmt.Fprintf(w, "  o%d %s o%d\n", places[r.Owner], mermaidArrow(r), places[r.Dependent])
	}
	w.WriteString("  classDef missing stroke-dasharray:4\n  classDef deleting fill:#fde68a,color:#000\n")
}

func mermaidClass(o *Object) string {
	switch {
	case o.Missing:
		return ":::missing"
	case o.Phase != ownership.Active.String():
		return ":::deleting"
	default:
		return ""
	}
}

func mermaidArrow(r Reference) string {
	switch {
	case r.Standing != "solid" && r.Standing != "waiting":
		return "-. " + mermaidText(r.Standing) + " .->"
	case r.Blocking:
		return "==>"
	default:
		return "-->"
	}
}

// mermaidText escapes the characters with a meaning in a quoted label, line breaks included.
func mermaidText(text string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;").Replace(escape.Line(text))
}
