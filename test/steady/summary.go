package main

import (
	"regexp"
	"slices"
	"strings"
)

var (
	shuffled = regexp.MustCompile(`^-test\.shuffle (\d+)$`)
	failed   = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	begun    = regexp.MustCompile(`^=== (?:RUN|CONT|NAME|PAUSE)\s+(\S*)`)
	seeded   = regexp.MustCompile(`(?i)\bseed\b\S*[ =:]+\d+|-\S*seed[ =]\d+`)
	broken   = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|SIG[A-Z]+: )`)
)

// mostLines bounds the lines that a summary has of one test.
const mostLines = 20

// summary returns the facts that repeat a failed run, in indented lines: the seed of the order of the tests, and each
// failed test with its output, its own seeds included.
func summary(output string) string {
	var order, rest []string
	var failures []string
	printed := map[string][]string{} // by test
	test := ""
	for line := range strings.Lines(output) {
		line = strings.TrimRight(strings.Trim(line, "\x16\n"), " ")
		if match := shuffled.FindStringSubmatch(line); match != nil {
			order = append(order, "order: -test.shuffle="+match[1])
			continue
		}
		if match := begun.FindStringSubmatch(line); match != nil {
			test = match[1]
			continue
		}
		if match := failed.FindStringSubmatch(line); match != nil {
			test = match[1]
			failures = append(failures, test)
			continue
		}
		if broken.MatchString(line) {
			rest = append(rest, line)
		}
		printed[test] = append(printed[test], line)
	}
	lines := slices.Concat(order, rest)
	for _, test := range failures {
		lines = append(lines, test+" failed")
		for i, line := range printed[test] {
			if i < mostLines || seeded.MatchString(line) {
				lines = append(lines, "  "+strings.TrimSpace(line))
			}
		}
	}
	if len(failures) == 0 {
		all := strings.Split(strings.TrimSpace(output), "\n")
		lines = append(lines, all[max(0, len(all)-mostLines):]...)
	}
	return "    " + strings.Join(lines, "\n    ") + "\n"
}
