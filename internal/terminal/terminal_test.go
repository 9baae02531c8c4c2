package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestEscape(t *testing.T) {
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
		if got := Escape(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// FuzzWriter: however a text is cut, nothing that controls a terminal passes, and nothing else is changed. In JSON
// the escapes mean the same.
func FuzzWriter(f *testing.F) {
	for _, text := range []string{"", "a\x1b[2Jb", "größer 日本 🎉\u009b\u202e", "\xf0\x9f\x8e", "\x9b\xff\xc2"} {
		for cut := range 4 {
			f.Add(text, cut)
		}
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		var out bytes.Buffer
		w := NewWriter(&out)
		cut = min(max(cut, 0), len(text))
		for _, part := range []string{text[:cut], text[cut:]} {
			if n, err := w.Write([]byte(part)); err != nil || n != len(part) {
				t.Fatal(n, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if out.String() != Escape(text) {
			t.Errorf("cut at %d, %q is %q, not %q", cut, text, out.String(), Escape(text))
		}
		if strings.ContainsFunc(out.String(), controls) {
			t.Errorf("%q controls the terminal", out.String())
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(encoded, &before) != nil || json.Unmarshal([]byte(Escape(string(encoded))), &after) != nil || before != after {
			t.Errorf("in JSON, %q is %q", before, after)
		}
	})
}

func TestOwnSequencesPass(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	if _, err := Own(w).Write([]byte("\r\x1b[K")); err != nil || out.String() != "\r\x1b[K" {
		t.Errorf("%q %v", out.String(), err)
	}
	if File(w) != nil {
		t.Error("a buffer is a terminal")
	}
}
