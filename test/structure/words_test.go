package structure

import (
	_ "embed"
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// words.txt lists banned words: one per line, with what to say instead.
//
//go:embed words.txt
var wordList string

// ban is one line of words.txt.
type ban struct {
	kind    string // phrase, name or package
	pattern *regexp.Regexp
	instead string
}

func bans(t *testing.T) []ban {
	t.Helper()
	var all []ban
	for line := range strings.Lines(wordList) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, "|")
		if len(parts) != 3 {
			t.Fatalf("words.txt: %q is not of the form kind | pattern | instead", line)
		}
		b := ban{kind: strings.TrimSpace(parts[0]), instead: strings.TrimSpace(parts[2])}
		pattern := strings.TrimSpace(parts[1])
		switch b.kind {
		case "phrase":
			pattern = `(?i)\b` + strings.ReplaceAll(pattern, " ", `\s+`) + `\b`
		case "name", "package":
			pattern = `^(?:` + pattern + `)$`
		default:
			t.Fatalf("words.txt: there are phrases, names and packages, no %q", b.kind)
		}
		var err error
		if b.pattern, err = regexp.Compile(strings.ReplaceAll(pattern, "(or)", "|")); err != nil {
			t.Fatalf("words.txt: %s: %v", line, err)
		}
		all = append(all, b)
	}
	return all
}

// TestWordsStayAway fails on words for which Kubernetes has a better one, in names, comments,
// texts and documents. It reports all of them at once.
func TestWordsStayAway(t *testing.T) {
	all := bans(t)
	var problems []string
	found := func(place, what string, b ban) {
		problems = append(problems, fmt.Sprintf("%s: %q: say %s", place, strings.Join(strings.Fields(what), " "), b.instead))
	}
	inText := func(place, text string) {
		for _, b := range all {
			if b.kind != "phrase" {
				continue
			}
			for _, match := range b.pattern.FindAllString(text, -1) {
				found(place, match, b)
			}
		}
	}
	for _, d := range documents(t, ".md", ".txt") {
		if !strings.HasSuffix(d.path, "structure/words.txt") && !strings.HasPrefix(d.path, "docs/performance/") {
			inText(d.path, d.text)
		}
	}
	for _, f := range goFiles(t) {
		if strings.HasPrefix(f.name, "zz_generated") {
			continue
		}
		place := f.dir + "/" + f.name
		inText(place, strings.Join(slices.Collect(f.words()), "\n"))
		for _, b := range all {
			if b.kind == "package" && b.pattern.MatchString(strings.TrimSuffix(f.ast.Name.Name, "_test")) {
				found(place, "package "+f.ast.Name.Name, b)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			name := declared(n)
			for _, b := range all {
				if b.kind == "name" && name != "" && b.pattern.MatchString(name) {
					found(place, name, b)
				}
			}
			return true
		})
	}
	slices.Sort(problems)
	problems = slices.Compact(problems)
	if len(problems) > 0 {
		t.Errorf("%d words are not ours (test/structure/words.txt):\n%s", len(problems), strings.Join(problems, "\n"))
	}
}

// declared returns the name of the type or function that a node declares; "" if it does not.
func declared(n ast.Node) string {
	switch n := n.(type) {
	case *ast.TypeSpec:
		return n.Name.Name
	case *ast.FuncDecl:
		return n.Name.Name
	}
	return ""
}
