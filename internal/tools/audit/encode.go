package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize/english"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Formats returns the formats of Encode.
func Formats() []string { return []string{"table", "json", "yaml", "sarif", "junit"} }

// Encode writes a report in one of the Formats.
func (r Report) Encode(format string) ([]byte, error) {
	if r.Findings == nil {
		r.Findings = []Finding{} // encoded as an empty list, not as null
	}
	switch format {
	case "table":
		return r.table()
	case "json":
		return indented(r)
	case "yaml":
		text, err := yaml.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode the findings: %w", err)
		}
		return text, nil
	case "sarif":
		return indented(sarifOf(r))
	case "junit":
		return r.junit()
	default:
		return nil, fmt.Errorf("format %q is unknown: choose one of %s", format, strings.Join(Formats(), ", "))
	}
}

func indented(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the findings: %w", err)
	}
	return append(text, '\n'), nil
}

// table returns the findings as lines, then the suggestion for each code, then the counts.
func (r Report) table() ([]byte, error) {
	var lines, text bytes.Buffer
	if len(r.Findings) > 0 {
		fmt.Fprintln(&lines, "SEVERITY\tCODE\tNAMESPACE\tOBJECT\tFINDING")
	}
	var codes []Code
	for i := range r.Findings {
		f := &r.Findings[i]
		lines.WriteString(escape.Sprintf("%s\t%s\t%s\t%s\t%s\n", f.Severity, f.Code, f.Object.Namespace, f.Object, f.Message))
		if !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	columns := tabwriter.NewWriter(&text, 0, 8, 3, ' ', 0)
	if _, err := columns.Write(lines.Bytes()); err != nil {
		return nil, fmt.Errorf("write the findings: %w", err)
	}
	if err := columns.Flush(); err != nil {
		return nil, fmt.Errorf("write the findings: %w", err)
	}
	for n, code := range codes {
		if n == 0 {
			fmt.Fprintln(&text)
		}
		fmt.Fprintf(&text, "%s: %s\n", code, ruleOf(code).Suggestion)
	}
	fmt.Fprintf(&text, "%s in %s", r.counts(), english.Plural(r.Objects, "object", ""))
	if n := len(r.Unread); n > 0 {
		fmt.Fprintf(&text, "; %s could not be read", english.Plural(n, "resource", ""))
	}
	fmt.Fprintln(&text)
	return text.Bytes(), nil
}

func (r Report) counts() string {
	parts := []string{english.Plural(r.count(Error), "error", ""), english.Plural(r.count(Warning), "warning", "")}
	if n := r.count(Note); n > 0 {
		parts = append(parts, english.Plural(n, "note", ""))
	}
	if r.Known > 0 {
		parts = append(parts, fmt.Sprintf("%d of the baseline", r.Known))
	}
	return strings.Join(parts, ", ")
}
