// Package escape makes text from a cluster safe for a terminal, and for the lines of a report. Users choose names,
// annotations and messages. An escape sequence in one of them can hide lines, rename the window, or make the terminal
// type; a line break can begin a line that looks like one of ours.
//
//	escape.Text(report)                         // text of several lines: line breaks and tabs stay
//	escape.Line(name)                           // a field: it stays on one line, and in one column
//	escape.Shell(name)                          // a word of a command
//	escape.Sprintf("%s: %s\n", name, message)   // the line breaks of the format stay, the arguments are fields
//
// The package is pure. Package terminal has the writers.
package escape

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text returns a text with readable escapes in place of characters that control a terminal. Line breaks and tabs stay.
// Within a JSON string, the escapes decode to the same characters.
func Text(text string) string {
	if IsPlain([]byte(text)) {
		return text
	}
	return escaped(text)
}

// Line returns a field of a line. A line break and a tab are escaped in it like other control characters.
func Line(field string) string {
	if strings.ContainsAny(field, "\n\t") {
		field = strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(field)
	}
	return Text(field)
}

// Shell returns a word of a command that people paste into a shell: quoted, unless it has only characters without a
// meaning there.
func Shell(word string) string {
	isSafe := word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return ('a' > r || r > 'z') && ('A' > r || r > 'Z') && ('0' > r || r > '9') && !strings.ContainsRune("-_./:,=@%+", r)
	})
	if isSafe {
		return word
	}
	return "'" + strings.ReplaceAll(Line(word), "'", `'\''`) + "'"
}

// Sprintf formats as fmt.Sprintf does, with each argument as Line returns it.
func Sprintf(format string, args ...any) string {
	if false {
		_ = fmt.Sprintf(format, args...) // go vet checks the calls of a function that has this line
	}
	fields := make([]any, len(args))
	for i, arg := range args {
		fields[i] = fieldOf(arg)
	}
	return fmt.Sprintf(format, fields...)
}

// fieldOf returns an argument such that fmt formats it as a field. A string has its escapes before it is padded to the
// width of a column.
func fieldOf(arg any) any {
	switch v := arg.(type) {
	case string:
		return Line(v)
	case bool, int, int32, int64, uint64, float64:
		return v
	}
	return field{arg}
}

// field is an argument that is not a string.
type field struct{ value any }

// Format implements fmt.Formatter.
func (f field) Format(s fmt.State, verb rune) {
	_, _ = fmt.Fprint(s, Line(fmt.Sprintf(fmt.FormatString(s, verb), f.value))) // a State returns no error
}

func escaped(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0]) // some terminals take single bytes for control characters
		case Controls(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// IsPlain reports whether a text is in ASCII and controls nothing.
func IsPlain(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf || Controls(rune(c)) {
			return false
		}
	}
	return true
}

// Controls reports whether a character does something to a terminal, or to the order in which text is shown. Line
// breaks and tabs do not.
func Controls(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ', 0x7f <= r && r < 0xa0: // C0, DEL, C1
		return true
	case r == 0x061c, r == 0x200e, r == 0x200f, 0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069: // bidirectional text
		return true
	case r == 0x2028, r == 0x2029: // line ends
		return true
	}
	return false
}
