package structure

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// countedNoun matches a number before the plural of something that there may be one of.
var countedNoun = regexp.MustCompile(`%d (?:[a-z]+ )?(?:object|finding|dependent|owner|reference|finalizer|check|error|warning|problem|cause|pod|namespace|deletion)s\b`)

// alwaysSeveral has texts with a number that is never 1, or after which the plural is right.
var alwaysSeveral = regexp.MustCompile(`of %d|at most %d|more than the %d|own each other|block each other|other objects with many owners|%d objects would be deleted`)

// Texts for people say "1 object": package english of go-humanize counts.
func TestNumbersHavePlurals(t *testing.T) {
	checked := 0
	for _, f := range goFiles(t) {
		isForPeople := strings.HasPrefix(f.dir, "internal/cli") || strings.HasPrefix(f.dir, "internal/tools") || strings.HasPrefix(f.dir, "internal/collect")
		if f.isTest() || !isForPeople {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			text, isLiteral := n.(*ast.BasicLit)
			if !isLiteral || text.Kind != token.STRING || !strings.Contains(text.Value, "%d") {
				return true
			}
			checked++
			if countedNoun.MatchString(text.Value) && !alwaysSeveral.MatchString(text.Value) {
				t.Errorf("%s: %s may be about one: use english.Plural", f.at(text), text.Value)
			}
			return true
		})
	}
	if checked == 0 {
		t.Error("no texts were checked")
	}
}
