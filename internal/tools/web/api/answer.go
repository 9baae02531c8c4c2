package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// Every answer has a bound in bytes. An answer that exceeds it is refused with 413, before any of it is written: a part
// of a graph or of a preview would look like the whole, and backups are made from previews. Lists are encoded item by
// item, and long ones twice: to count the bytes, and to send them. So the memory does not grow with the answer.
const (
	// mostAnswer is the largest answer, in bytes.
	mostAnswer = 64 << 20
	// mostKept is the largest answer, in bytes, that is kept in memory instead of being encoded twice.
	mostKept = 1 << 20
)

// spool keeps the beginning of an answer, and counts the rest.
type spool struct {
	kept  bytes.Buffer
	bytes int
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	if s.bytes += len(p); s.bytes > mostAnswer {
		return 0, errTooLarge
	}
	if s.bytes <= mostKept {
		s.kept.Write(p)
	}
	return len(p), nil
}

var errTooLarge = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf(
	"the answer would have more than %d MiB: name fewer objects, or objects with fewer dependents; coppice with --address=none reads the cluster itself, without a bound", mostAnswer>>20)}

// write answers with the output of a function, which it calls once or twice. Characters that control a terminal are
// escaped, for callers who use curl. In JSON, the escapes decode to the same characters.
func write(w http.ResponseWriter, contentType string, answer func(io.Writer) error) error {
	produce := func(out io.Writer) error {
		shown := terminal.NewWriter(out)
		if err := answer(shown); err != nil {
			return err
		}
		return shown.Close()
	}
	first := &spool{}
	if err := produce(first); err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType)
	if first.bytes <= mostKept {
		_, _ = first.kept.WriteTo(w)
		return nil
	}
	first.kept = bytes.Buffer{}
	if err := produce(w); err != nil {
		panic(http.ErrAbortHandler) // the caller is gone; a part must not look like a whole answer
	}
	return nil
}

func writeJSON(w http.ResponseWriter, value any) error {
	return write(w, "application/json", func(out io.Writer) error { return encode(out, value) })
}

// encode writes the same as json.Encoder with an indentation of two spaces. It encodes the elements of lists in a
// struct one by one.
func encode(out io.Writer, value any) error {
	v := reflect.ValueOf(value)
	if v.Kind() != reflect.Struct {
		return element(out, value, "", "\n")
	}
	separator := "{"
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		field := v.FieldByIndex(f.Index)
		if strings.Contains(options, "omitempty") && isEmpty(field) || strings.Contains(options, "omitzero") && field.IsZero() {
			continue
		}
		if _, err := fmt.Fprintf(out, "%s\n  %q: ", separator, name); err != nil {
			return err
		}
		separator = ","
		if err := member(out, field); err != nil {
			return err
		}
	}
	if separator == "{" {
		return element(out, value, "", "\n")
	}
	_, err := io.WriteString(out, "\n}\n")
	return err
}

// isEmpty reports whether omitempty omits a value.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// member writes the value of a member.
func member(out io.Writer, v reflect.Value) error {
	if v.Kind() != reflect.Slice || v.Len() == 0 {
		return element(out, v.Interface(), "  ", "")
	}
	for n := range v.Len() {
		before := "[\n    "
		if n > 0 {
			before = ",\n    "
		}
		if _, err := io.WriteString(out, before); err != nil {
			return err
		}
		if err := element(out, v.Index(n).Interface(), "    ", ""); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, "\n  ]")
	return err
}

// element writes a value, with its lines after the first indented.
func element(out io.Writer, value any, indent, after string) error {
	text, err := json.MarshalIndent(value, indent, "  ")
	if err != nil {
		return &refusal{http.StatusInternalServerError, err.Error()}
	}
	_, err = out.Write(append(text, after...))
	return err
}
