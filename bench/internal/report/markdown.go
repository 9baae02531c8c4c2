package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Section is the heading of a table and the explanation of its figures.
type Section struct {
	Name, Title, About string
}

// Markdown writes the report: for each measured section its date, its versions and a table.
func (r *Results) Markdown(w io.Writer, sections []Section) error {
	var text strings.Builder
	text.WriteString("# Performance\n\nWritten by `make bench`; do not edit. Each cell is the median of the runs, with the lowest and the highest\n" +
		"in parentheses where there are several.\n")
	if r.machine.Quick {
		text.WriteString("\n**A quick run: sizes are a fraction, and the figures mean nothing.**\n")
	}
	for _, section := range sections {
		s := r.sections[section.Name]
		if s == nil || len(s.values) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n## %s\n\n%s\n\n%s\n\n", section.Title, Wrap(section.About, ""), Wrap(r.provenance(section.Name, s.machine), ""))
		table(&text, s.values)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// provenance names the date, the machine and the versions of a section, and the file of its values.
func (r *Results) provenance(section string, m Machine) string {
	parts := []string{fmt.Sprintf("Measured on %s: %s, %d cores, %d GiB", m.Date, m.Processor, m.Cores, m.MemoryGiB)}
	for _, part := range []string{m.Kernel, m.Go, m.Coppice, m.Kubernetes} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, ", ") + "."
	if r.dir != "" {
		text += fmt.Sprintf(" Every single value is in [%s](%[1]s).", fileOf(section))
	}
	return text
}

// table writes a row for each figure and a column for each side, in the order in which they were
// first measured.
func table(text *strings.Builder, values []Value) {
	type row struct{ figure, unit string }
	var rows []row
	var sides []string
	cells := map[row]map[string][]float64{}
	for _, v := range values {
		r := row{v.Figure, v.Unit}
		if cells[r] == nil {
			cells[r] = map[string][]float64{}
			rows = append(rows, r)
		}
		if !slices.Contains(sides, v.Side) {
			sides = append(sides, v.Side)
		}
		cells[r][v.Side] = append(cells[r][v.Side], v.Value)
	}
	fmt.Fprintf(text, "| | unit | %s |\n|---|---|%s\n", strings.Join(sides, " | "), strings.Repeat("---|", len(sides)))
	for _, r := range rows {
		fmt.Fprintf(text, "| %s | %s |", r.figure, r.unit)
		for _, side := range sides {
			fmt.Fprintf(text, " %s |", cell(cells[r][side]))
		}
		text.WriteString("\n")
	}
}

// cell shows the median of values and, if there are several, their range.
func cell(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	slices.Sort(values)
	if len(values) == 1 {
		return Number(values[0])
	}
	return fmt.Sprintf("**%s** (%s–%s)", Number(Median(values)), Number(values[0]), Number(values[len(values)-1]))
}

// Median returns the middle value, or the mean of the two in the middle.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Number formats a number with three significant digits and separated thousands.
func Number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	if digits >= 0 {
		return strconv.FormatFloat(v, 'f', digits, 64)
	}
	scale := math.Pow10(-digits)
	text := strconv.FormatFloat(math.Round(v/scale)*scale, 'f', 0, 64)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + " " + text[at:]
	}
	return text
}

// lineLength is the limit of the documents' lines.
const lineLength = 120

// Wrap breaks a paragraph into lines; all but the first begin with the indent.
func Wrap(paragraph, indent string) string {
	var text strings.Builder
	length := 0
	for word := range strings.FieldsSeq(paragraph) {
		switch {
		case length == 0:
		case length+1+len(word) > lineLength:
			text.WriteString("\n" + indent)
			length = len(indent)
		default:
			text.WriteString(" ")
			length++
		}
		text.WriteString(word)
		length += len(word)
	}
	return text.String()
}
