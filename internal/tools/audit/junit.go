package audit

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// The parts of a JUnit report on which CI services agree.
type (
	junitSuites struct {
		XMLName xml.Name   `xml:"testsuites"`
		Suite   junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// junit returns a report with a test case for each rule. A test case fails if the rule has findings, unless
// they are notes.
func (r Report) junit() ([]byte, error) {
	suite := junitSuite{Name: "coppice audit"}
	for _, rule := range Rules() {
		one := junitCase{Class: "coppice.audit", Name: string(rule.Code)}
		var lines []string
		for i := range r.Findings {
			f := &r.Findings[i]
			if f.Code != rule.Code {
				continue
			}
			where := f.Object.String()
			if f.Object.Namespace != "" {
				where += " in namespace " + f.Object.Namespace
			}
			lines = append(lines, escape.Line(where+": "+f.Message))
		}
		switch text := strings.Join(lines, "\n"); {
		case rule.Severity == Note:
			one.Out = text
		case len(lines) > 0:
			one.Failure = &junitFailure{Message: fmt.Sprintf("%s: %s", english.Plural(len(lines), "finding", ""), rule.Title), Type: string(rule.Severity), Text: text + "\n" + rule.Suggestion}
			suite.Failures++
		}
		suite.Tests++
		suite.Cases = append(suite.Cases, one)
	}
	text, err := xml.MarshalIndent(junitSuites{Suite: suite}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the findings: %w", err)
	}
	return append([]byte(xml.Header), append(text, '\n')...), nil
}
