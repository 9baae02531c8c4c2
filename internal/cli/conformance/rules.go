package conformance

import (
	"regexp"
	"strings"

	"github.com/coppice-dev/coppice/docs"
)

// Rule is a rule or an invariant of docs/semantics.md.
type Rule struct {
	Code  string `json:"code"`
	Title string `json:"title"`
}

var (
	ruleHeading = regexp.MustCompile(`^### (R\d+) (.+)$`)
	invariant   = regexp.MustCompile(`^\* \*\*([SL]\d+)\*\* (.+)$`)
)

// Rules returns all invariants and rules, in the order of the document.
func Rules() []Rule {
	var all []Rule
	isOpen := false // the last line belongs to an invariant
	for line := range strings.Lines(docs.Semantics) {
		line = strings.TrimRight(line, "\n")
		switch match := ruleHeading.FindStringSubmatch(line); {
		case match != nil:
			all, isOpen = append(all, Rule{match[1], match[2]}), false
			continue
		case isOpen && strings.HasPrefix(line, "  "):
			all[len(all)-1].Title += " " + strings.TrimSpace(line)
			continue
		}
		match := invariant.FindStringSubmatch(line)
		if isOpen = match != nil; isOpen {
			all = append(all, Rule{match[1], match[2]})
		}
	}
	return all
}
