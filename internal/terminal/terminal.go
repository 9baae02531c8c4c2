// Package terminal makes text from a cluster safe for a terminal. Users choose names, annotations and messages: an
// escape sequence in one of them can hide lines, rename the window, or make the terminal type.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"
)

// Writer writes text with readable escapes in place of control characters. Within a JSON string, the escapes
// decode to the same characters. A character may be split between two writes. Writer is safe for concurrent use.
type Writer struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // guarded by mu; the beginning of a character whose end has not been written yet
}

// NewWriter returns a Writer.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rest) == 0 && isPlain(p) {
		return w.to.Write(p)
	}
	text := append(w.rest, p...)
	end := len(text) - begun(text)
	w.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(w.to, escape(text[:end])); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes the bytes of an incomplete character at the end. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.rest
	w.rest = nil
	_, err := io.WriteString(w.to, escape(rest))
	return err
}

// Own returns the writer for text of our own, which may move the cursor and have colors. Nothing from a cluster
// may be written to it.
func Own(w io.Writer) io.Writer {
	if escaping, ok := w.(*Writer); ok {
		return escaping.to
	}
	return w
}

// File returns the terminal behind a writer, or nil if the writer is not a terminal.
func File(w io.Writer) *os.File {
	file, ok := Own(w).(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return file
}

// Escape returns a text as a Writer writes it.
func Escape(text string) string {
	if isPlain([]byte(text)) {
		return text
	}
	return escape([]byte(text))
}

func escape(text []byte) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0]) // some terminals take single bytes for control characters
		case controls(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.Write(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// isPlain reports whether a text is in ASCII and controls nothing.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf || controls(rune(c)) {
			return false
		}
	}
	return true
}

// controls reports whether a character does something to a terminal, or to the order in which text is shown.
func controls(r rune) bool {
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

// begun returns how many bytes at the end of a text are the beginning of a character that needs more.
func begun(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		last := text[len(text)-n:]
		if utf8.RuneStart(last[0]) {
			if last[0] >= utf8.RuneSelf && !utf8.FullRune(last) {
				return n
			}
			return 0
		}
	}
	return 0
}
