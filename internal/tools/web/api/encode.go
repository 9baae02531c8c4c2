package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
)

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
	e := newElements(out)
	for n := range v.Len() {
		before := "[\n    "
		if n > 0 {
			before = ",\n    "
		}
		if err := e.write(before, v.Index(n).Addr().Interface()); err != nil { // by its address: without a copy
			return err
		}
	}
	return e.close("\n  ]")
}

// elements writes the elements of a list, some at a time.
type elements struct {
	out     io.Writer
	encoder *json.Encoder // to text
	text    bytes.Buffer  // not written yet
}

// mostPending is the length of the text in bytes after which it is written.
const mostPending = 32 << 10

func newElements(out io.Writer) *elements {
	e := &elements{out: out}
	e.encoder = json.NewEncoder(&e.text)
	e.encoder.SetIndent("    ", "  ")
	return e
}

// write writes an element after a separator.
func (e *elements) write(separator string, value any) error {
	e.text.WriteString(separator)
	if err := e.encoder.Encode(value); err != nil {
		return &refusal{http.StatusInternalServerError, err.Error()}
	}
	e.text.Truncate(e.text.Len() - len("\n")) // which the encoder adds
	if e.text.Len() < mostPending {
		return nil
	}
	return e.flush()
}

func (e *elements) flush() error {
	_, err := e.text.WriteTo(e.out)
	return err
}

// close writes the end of the list.
func (e *elements) close(end string) error {
	e.text.WriteString(end)
	return e.flush()
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
