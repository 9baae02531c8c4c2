package structure

import (
	"go/ast"
	"go/token"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// cited matches codes that refer to a rule, an invariant, a hazard or a behaviour of the
	// matrix: R7, S1, L4, H8, NS-06. No document defines an E.
	cited = regexp.MustCompile(`\b(?:R[0-9]{1,2}|[SLE][1-9]|H(?:10|[1-9])[ab]?|(?:GB|TR|AC|VN|CF|OR|FG|BG|MX|CY|CS|CR|DR|NS|AS|AD|PR)-[0-9]{2})\b`)
	// defined matches the codes that docs/semantics.md defines: at the beginning of a heading, an
	// item, or a row of a table.
	defined = regexp.MustCompile(`(?m)^(?:#+ |\| *|[-*] +)\**([RSL][0-9]{1,2})\b`)
	// behaviourLine matches the codes that the matrix defines.
	behaviourLine = regexp.MustCompile(`(?m)^([A-Z]{2}-[0-9]{2}|H[0-9]+[ab]?) `)
)

const matrixPath = "test/conformance/matrix.txt"

// TestCitedCodesAreDefined fails on a code that no document defines: a reader must find R7 or
// NS-06 in docs/semantics.md or in the matrix.
func TestCitedCodesAreDefined(t *testing.T) {
	known := map[string]bool{}
	for _, d := range documents(t, ".md", ".txt") {
		pattern := behaviourLine
		switch d.path {
		case "docs/semantics.md":
			pattern = defined
		case matrixPath:
		default:
			continue
		}
		for _, match := range pattern.FindAllStringSubmatch(d.text, -1) {
			known[match[1]] = true
		}
	}
	citations := map[string][]string{} // by code: where
	cite := func(place, text string) {
		for _, code := range cited.FindAllString(text, -1) {
			if !known[code] && !slices.Contains(citations[code], place) {
				citations[code] = append(citations[code], place)
			}
		}
	}
	for _, d := range documents(t, ".md", ".txt", ".trace", ".patch") {
		cite(d.path, d.text)
	}
	for _, f := range goFiles(t) {
		for text := range f.words() {
			cite(f.dir+"/"+f.name, text)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(citations)) {
		t.Errorf("neither docs/semantics.md nor %s defines %s, which is cited by\n\t%s", matrixPath, code, strings.Join(citations[code], "\n\t"))
	}
}

// words yields the comments and the string literals of a file.
func (f goFile) words() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, group := range f.ast.Comments {
			if !yield(group.Text()) {
				return
			}
		}
		goOn := true
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING && goOn {
				goOn = yield(literal.Value)
			}
			return goOn
		})
	}
}
