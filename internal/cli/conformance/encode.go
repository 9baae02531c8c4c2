package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"
	"sigs.k8s.io/yaml"
)

// Formats returns the formats of Encode.
func Formats() []string { return []string{"table", "json", "yaml", "junit"} }

// Encode writes a report in one of the Formats.
func (r Report) Encode(format string) ([]byte, error) {
	if r.Checks == nil {
		r.Checks = []Result{} // an empty list instead of null
	}
	var text []byte
	var err error
	switch format {
	case "table":
		text, err = r.table()
	case "json":
		text, err = json.MarshalIndent(r, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(r)
	case "junit":
		text, err = r.junit()
	default:
		err = fmt.Errorf("format %q is unknown: choose one of %s", format, strings.Join(Formats(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("encode the report: %w", err)
	}
	return text, nil
}

// widest is the number of columns of a rule's title in the table.
const widest = 72

// table returns the declared differences and the skipped checks, then the rules, then the failed checks, and then the
// number of checks: what matters most is what a terminal, or the end of a log, shows.
func (r Report) table() ([]byte, error) {
	var text, lines bytes.Buffer
	r.describe(&text, Accepted)
	r.describeSkipped(&text)
	fmt.Fprintln(&lines, "RULE\tOUTCOME\tCHECKS\tTITLE")
	for i := range r.Rules {
		rule := &r.Rules[i]
		var counts []string
		for _, o := range []Outcome{Fail, Accepted, Pass, Skipped} {
			if n := len(rule.Checks[o]); n > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", n, o))
			}
		}
		fmt.Fprintf(&lines, "%s\t%s\t%s\t%s\n", rule.Code, rule.Outcome, strings.Join(counts, ", "), cut(rule.Title))
	}
	columns := tabwriter.NewWriter(&text, 0, 8, 3, ' ', 0)
	if _, err := columns.Write(lines.Bytes()); err != nil {
		return nil, fmt.Errorf("write the rules: %w", err)
	}
	if err := columns.Flush(); err != nil {
		return nil, fmt.Errorf("write the rules: %w", err)
	}
	fmt.Fprintln(&text)
	r.describe(&text, Fail)
	fmt.Fprintln(&text, r.summary())
	return text.Bytes(), nil
}

// describe writes the results of the checks with an outcome.
func (r Report) describe(to *bytes.Buffer, outcome Outcome) {
	for i := range r.Checks {
		if r.Checks[i].Outcome == outcome {
			r.Checks[i].describe(to)
		}
	}
}

// describeSkipped lists the skipped checks by reason.
func (r Report) describeSkipped(to *bytes.Buffer) {
	var reasons []string
	names := map[string][]string{}
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Outcome == Skipped {
			if names[c.Reason] == nil {
				reasons = append(reasons, c.Reason)
			}
			names[c.Reason] = append(names[c.Reason], c.Name)
		}
	}
	for _, reason := range reasons {
		fmt.Fprintf(to, "skipped: %s\n    %s\n\n", reason, strings.Join(names[reason], "\n    "))
	}
}

// cut shortens a title to a line.
func cut(title string) string {
	if utf8.RuneCountInString(title) <= widest {
		return title
	}
	return string([]rune(title)[:widest-1]) + "…"
}

// summary returns the numbers of checks on one line.
func (r Report) summary() string {
	var parts []string
	for _, o := range []Outcome{Pass, Fail, Accepted, Skipped} {
		if n := r.Counts[o]; n > 0 || o == Pass {
			parts = append(parts, fmt.Sprintf("%d %s", n, map[Outcome]string{Pass: "passed", Fail: "failed", Accepted: "declared", Skipped: "skipped"}[o]))
		}
	}
	return fmt.Sprintf("%s in %.0f s on %s (%s): %s", english.Plural(len(r.Checks), "check", ""), r.Seconds, r.Server, r.Version, strings.Join(parts, ", "))
}

// describe writes the result of a check that did not pass.
func (r *Result) describe(to *bytes.Buffer) {
	if r.Outcome == Pass {
		return
	}
	fmt.Fprintf(to, "%s: %s", r.Outcome, r.Name)
	if len(r.Rules) > 0 {
		fmt.Fprintf(to, " (%s)", strings.Join(r.Rules, " "))
	}
	if r.Reason != "" {
		fmt.Fprintf(to, ": %s", r.Reason)
	}
	fmt.Fprintln(to)
	for _, f := range r.Failures {
		fmt.Fprintf(to, "    %s\n", indent(f))
	}
	for _, d := range r.Declared {
		fmt.Fprintf(to, "    %s: %s\n    upstream: %s\n    seen: %s\n", strings.Join(d.Rules, " "), d.Ours, d.Upstream, indent(d.Seen))
	}
	for _, line := range r.Log {
		fmt.Fprintf(to, "    %s\n", indent(line))
	}
	if len(r.Requests) > 0 {
		fmt.Fprintln(to, "    its requests:")
	}
	for _, request := range r.Requests {
		fmt.Fprintf(to, "        %s\n", request)
	}
	fmt.Fprintln(to)
}

func indent(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n        ")
}

// The parts of a JUnit report that all CI services support.
type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junit returns a report with a test case for each check.
func (r Report) junit() ([]byte, error) {
	suite := junitSuite{
		Name: "coppice conformance", Tests: len(r.Checks), Failures: r.Counts[Fail], Skipped: r.Counts[Skipped], Time: seconds(r.Seconds),
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		one := junitCase{Class: "coppice.conformance." + strings.Join(c.Rules, "-"), Name: c.Name, Time: seconds(c.Seconds)}
		var text bytes.Buffer
		c.describe(&text)
		switch c.Outcome {
		case Fail:
			first, _, _ := strings.Cut(c.Failures[0], "\n")
			one.Failure = &junitMessage{Message: first, Text: text.String()}
		case Skipped:
			one.Skipped = &junitMessage{Message: c.Reason}
		case Pass, Accepted, NotExercised:
			one.Out = text.String()
		}
		suite.Cases = append(suite.Cases, one)
	}
	text, err := xml.MarshalIndent(junitSuites{Suite: suite}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the checks: %w", err)
	}
	return append([]byte(xml.Header), append(text, '\n')...), nil
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
