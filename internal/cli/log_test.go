package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// Long texts and errors are cut, so that no line of the log is long.
func TestLongTextsInTheLogAreCut(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := newLogger(t.Context(), &out, "info", format)
		if err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("x", 1<<20)
		log.Info("collected", "object", long, "error", errors.New(long), "names", []string{long}, "count", 7)
		if text := out.String(); len(text) > 4*maxAttr || strings.Count(text, " bytes)") != 3 || !strings.Contains(text, "7") {
			t.Errorf("%s: %d bytes: %.100s", format, len(text), text)
		}
	}
}
