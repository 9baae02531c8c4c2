// Package terminal writes text from a cluster to a terminal. Package escape decides which characters a terminal may
// get.
package terminal

import (
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/coppice-dev/coppice/internal/rules/escape"
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
	if len(w.rest) == 0 && escape.IsPlain(p) {
		return w.to.Write(p)
	}
	text := append(w.rest, p...)
	end := len(text) - begun(text)
	w.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(w.to, escape.Text(string(text[:end]))); err != nil {
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
	_, err := io.WriteString(w.to, escape.Text(string(rest)))
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

// Fprintf writes a line of a report, with each argument as escape.Line returns it: no name and no message begins a line
// or a column. Output that cannot be written is lost.
func Fprintf(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, escape.Sprintf(format, args...))
}

// begun returns the number of bytes at the end of a text that begin an incomplete character.
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
