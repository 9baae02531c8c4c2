package report

import "strings"

// Requote returns a document with each row that it quotes from an earlier report as the new report has it. A row that
// the new report does not have any more stays as it is.
func Requote(document, earlier, report string) string {
	rows := rowsByFigure(report)
	quoted := map[string]string{}
	for figure, row := range rowsByFigure(earlier) {
		if now, ok := rows[figure]; ok {
			quoted[row] = now
		}
	}
	lines := strings.Split(document, "\n")
	for i, line := range lines {
		if now, ok := quoted[line]; ok {
			lines[i] = now
		}
	}
	return strings.Join(lines, "\n")
}

// figure names a row: its section, and its first two cells.
type figure struct{ section, name, unit string }

func rowsByFigure(report string) map[figure]string {
	rows := map[figure]string{}
	section := ""
	for line := range strings.SplitSeq(report, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.Trim(cells[1], " -") != "" {
			rows[figure{section, cells[1], cells[2]}] = line
		}
	}
	return rows
}

// The lines around a table that a document takes from the report as a whole. The first one names the section.
const (
	tableBegins, tableTitleEnds = "<!-- table: ", " -->"
	tableEnds                   = "<!-- end of the table -->"
)

// Embed returns a document with each table that it takes from the report as the report has it. A table of a section that
// the report does not have stays as it is.
func Embed(document, report string) string {
	tables := tablesBySection(report)
	var lines []string
	isReplaced := false
	for line := range strings.SplitSeq(document, "\n") {
		if line == tableEnds {
			isReplaced = false
		}
		if !isReplaced {
			lines = append(lines, line)
		}
		title, begins := strings.CutPrefix(line, tableBegins)
		if table := tables[strings.TrimSuffix(title, tableTitleEnds)]; begins && len(table) > 0 {
			lines = append(append(append(lines, ""), table...), "")
			isReplaced = true
		}
	}
	return strings.Join(lines, "\n")
}

// tablesBySection returns the lines of the table of each section.
func tablesBySection(report string) map[string][]string {
	tables := map[string][]string{}
	section := ""
	for line := range strings.SplitSeq(report, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if strings.HasPrefix(line, "|") {
			tables[section] = append(tables[section], line)
		}
	}
	return tables
}
