package structure

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The bounds of TestEnglishIsPlain, in texts per thousand. etcd-io/raft has 9 in comments and messages, karpenter 7.
const (
	unclearOfAll       = 10
	unclearOfAPackage  = 30
	unclearOfDocuments = 80
)

// unclear matches the sentences that readers have to read twice, by their form. It knows nothing of good style.
var unclear = regexp.MustCompile(`(?i)\b(?:` + strings.Join([]string{
	// A relative clause without a noun before it: "keeps what is asked for". Name the objects, owners or callers.
	`(?:is|are|was|of|for|with|by|from|to|about|on|and|or|than|as|says?|said|tells?|told|knows?|known|keeps|has|have) what`,
	`what (?:it|they|is|are|was|were|has|have|goes|stays|waits|comes|remains|belongs|matters|somebody|others|else)`,
	`(?:those|that) (?:that|of|which|who) (?:is|are|was|were|has|have|it|they|an?|the)`,
	`whoever`,
	`who (?:asks|asked|serves|deletes|may|reads|tells)`,
	// A passive without a subject: "it is said who". Say who does it.
	`(?:it is|is|are|was) (?:said|told|asked|heard)`,
	// A negation in the place of a noun: "is none of those".
	`is none`,
	`nobody (?:is|has|does)`,
}, `|`) + `)\b`)

// clarity counts the texts of a package or of a kind of document.
type clarity struct {
	texts   int
	unclear []string // places
}

func (c *clarity) add(place, text string) {
	c.texts++
	if found := unclear.FindString(text); found != "" {
		c.unclear = append(c.unclear, fmt.Sprintf("%s: %q", place, found))
	}
}

func (c *clarity) exceeds(perThousand int) bool { return 1000*len(c.unclear) > perThousand*c.texts }

// texts calls add for each comment and each message in a file. A message is a string of five words at least.
func (f goFile) texts(add func(place, text string)) {
	for _, comment := range f.ast.Comments {
		add(f.at(comment), comment.Text())
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Count(l.Value, " ") >= 4 {
			add(f.at(l), l.Value)
		}
		return true
	})
}

// TestEnglishIsPlain bounds the number of comments, messages and paragraphs that have to be read twice. Write short active
// sentences with a noun as the subject. One text of a small package may be unclear.
func TestEnglishIsPlain(t *testing.T) {
	packages := map[string]*clarity{}
	for _, f := range everyGoFile(t) {
		if f.isTest() || strings.HasPrefix(f.name, "zz_generated") {
			continue
		}
		if packages[f.dir] == nil {
			packages[f.dir] = &clarity{}
		}
		f.texts(packages[f.dir].add)
	}
	var all clarity
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		c := packages[dir]
		all.texts += c.texts
		all.unclear = append(all.unclear, c.unclear...)
		if len(c.unclear) > 1 && c.exceeds(unclearOfAPackage) {
			t.Errorf("%s: %d of %d texts have to be read twice:\n\t%s", cmp.Or(dir, "."), len(c.unclear), c.texts, strings.Join(c.unclear, "\n\t"))
		}
	}
	if all.texts == 0 || all.exceeds(unclearOfAll) {
		t.Errorf("%d of %d comments and messages have to be read twice:\n\t%s", len(all.unclear), all.texts, strings.Join(all.unclear, "\n\t"))
	}
	var paragraphs clarity
	for _, d := range documents(t, ".md") {
		for p := range strings.SplitSeq(d.text, "\n\n") {
			paragraphs.add(d.path, p)
		}
	}
	if paragraphs.exceeds(unclearOfDocuments) {
		t.Errorf("%d of %d paragraphs have to be read twice:\n\t%s", len(paragraphs.unclear), paragraphs.texts, strings.Join(paragraphs.unclear, "\n\t"))
	}
}
