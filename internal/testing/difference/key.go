package difference

import (
	"regexp"
	"strings"
)

var (
	indexes   = regexp.MustCompile(`\[[0-9]+\]`)
	templates = regexp.MustCompile(`\b(spec\.)?(jobTemplate\.spec\.)?template\.(spec|metadata)\b`)
	longName  = regexp.MustCompile(`a{200,}`)
)

var (
	causeLine  = regexp.MustCompile(`^(only (?:ours|theirs): (?:\(the other accepts\) )?\w+ [^ ]*): .*$`)
	hasLine    = regexp.MustCompile(`^(only (?:ours|theirs) has [^ ]+) = .*$`)
	valueLine  = regexp.MustCompile(`^([^ ]+): ours .*, theirs .*$`)
	namesLine  = regexp.MustCompile(`"[^"]*"`)
	mapKeyLine = regexp.MustCompile(`\[[^\]]+\]`)
)

// Key returns a difference in general: its place and its sort, without the values.
func Key(kind, difference string) string {
	switch {
	case causeLine.MatchString(difference):
		difference = causeLine.ReplaceAllString(difference, "$1")
	case hasLine.MatchString(difference):
		difference = hasLine.ReplaceAllString(difference, "$1")
	case strings.HasPrefix(difference, "message of "):
		difference, _, _ = strings.Cut(difference, ": ours ")
	case strings.HasPrefix(difference, "answer: "), strings.HasPrefix(difference, "message: "), strings.Contains(difference, " warns: "):
		difference = namesLine.ReplaceAllString(difference, "…")
	case valueLine.MatchString(difference):
		difference = valueLine.ReplaceAllString(difference, "$1 differs")
	}
	return General(kind, mapKeyLine.ReplaceAllString(difference, "[]"))
}

// General returns a difference without what tells one place from others like it: indexes, and
// the template that a pod is in.
func General(kind, difference string) string {
	text := indexes.ReplaceAllString(longName.ReplaceAllString(difference, "a…"), "[]")
	if inTemplate := templates.ReplaceAllString(text, "$3"); inTemplate != text {
		return "Pod: " + inTemplate
	}
	return kind + ": " + text
}
