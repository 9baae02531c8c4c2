package insight

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// writeDOT writes the graph for Graphviz. The attributes from group to virtual have the same
// names as in upstream's debug endpoint, and an edge goes from the dependent to its owner, as
// there.
func (g Graph) writeDOT(w *bytes.Buffer) {
	w.WriteString("strict digraph full {\n  rankdir=RL;\n  node [shape=box];\n")
	for i := range g.Objects {
		writeVertex(w, i, &g.Objects[i])
	}
	place := g.places()
	for _, r := range g.References {
		fmt.Fprintf(w, "  %d -> %d%s;\n", place[r.Dependent], place[r.Owner], edgeStyle(r))
	}
	w.WriteString("}\n")
}

func writeVertex(w *bytes.Buffer, id int, o *Object) {
	deleting := !o.Missing && o.Phase != "active"
	label := escape.Sprintf("uid=%s\nnamespace=%s\n%s/%s\n", o.UID, o.Namespace, o.kind(), o.Name)
	style := ""
	switch {
	case o.Missing:
		label, style = label+"missingFromGraph\n", ` style="dashed"`
	case deleting:
		label, style = label+o.Phase+"\n", ` style="filled" fillcolor="lightgoldenrod"`
	}
	if o.Note != "" {
		label += escape.Line(o.Note) + "\n"
	}
	fmt.Fprintf(w, "  %d [label=%s group=%s kind=%s namespace=%s name=%s uid=%s missing=%s beingDeleted=%s deletingDependents=%s virtual=%s%s];\n",
		id, dotText(label), dotText(o.Group), dotText(o.Kind), dotText(o.Namespace), dotText(o.Name), dotText(string(o.UID)),
		dotBool(o.Missing), dotBool(deleting), dotBool(o.Phase == "foreground"), dotBool(o.Missing), style)
}

func edgeStyle(r Reference) string {
	var attributes []string
	switch r.Standing {
	case verdict.Solid.String():
	case verdict.Waiting.String():
		attributes = append(attributes, `color="orange"`)
	case verdict.Dangling.String():
		attributes = append(attributes, `color="red"`, `style="dashed"`)
	default: // unknown
		attributes = append(attributes, `color="gray"`, `style="dashed"`)
	}
	if r.Standing != verdict.Solid.String() {
		attributes = append(attributes, "label="+dotText(r.Standing))
	}
	if r.Blocking {
		attributes = append(attributes, `penwidth="2"`)
	}
	if len(attributes) == 0 {
		return ""
	}
	return " [" + strings.Join(attributes, " ") + "]"
}

func dotBool(b bool) string { return `"` + strconv.FormatBool(b) + `"` }

// dotText quotes a string. Names of some kinds may contain quotes and backslashes (GB-10), and
// Graphviz interprets escapes in labels, so backslashes are escaped everywhere.
func dotText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", " ", "\x00", " ").Replace(text) + `"`
}
