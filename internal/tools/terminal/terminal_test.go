package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// FuzzWriter: for every split of a text into writes, no control character passes, and other characters do not change.
// In JSON the escapes decode to the same characters.
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
		if out.String() != escape.Text(text) {
			t.Errorf("cut at %d, %q is %q, not %q", cut, text, out.String(), escape.Text(text))
		}
		if strings.ContainsFunc(out.String(), escape.Controls) {
			t.Errorf("%q controls the terminal", out.String())
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(encoded, &before) != nil || json.Unmarshal([]byte(escape.Text(string(encoded))), &after) != nil || before != after {
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
