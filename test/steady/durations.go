package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A test is long if a run of it took longLimit and longTimes as much as the run in the middle. Most tests give up after
// three minutes of waiting (package eventually): one that once waits for half a minute fails some day.
const (
	longLimit = 30 * time.Second
	longTimes = 4
)

var passed = regexp.MustCompile(`^--- PASS: (\S+) \((\S+)\)$`)

// durations has how long each run of a test took.
type durations map[string][]duration

type duration struct {
	took time.Duration
	run  attempt
}

// add adds the tests that have passed, by the output of a run.
func (d durations) add(output string, run attempt) {
	for line := range strings.Lines(output) {
		match := passed.FindStringSubmatch(strings.Trim(line, "\x16\n"))
		if match == nil {
			continue
		}
		if took, err := time.ParseDuration(match[2]); err == nil {
			d[match[1]] = append(d[match[1]], duration{took, run})
		}
	}
}

// long returns a line for each test that once took much longer than otherwise.
func (d durations) long() string {
	var lines strings.Builder
	for _, test := range slices.Sorted(maps.Keys(d)) {
		sorted := slices.SortedFunc(slices.Values(d[test]), func(a, b duration) int { return cmp.Compare(a.took, b.took) })
		middle, last := sorted[(len(sorted)-1)/2], sorted[len(sorted)-1]
		if last.took >= longLimit && last.took >= longTimes*middle.took {
			fmt.Fprintf(&lines, "LONG %s took %s in %s, and %s in most: it may wait for something that need not happen\n",
				test, last.took, last.run, middle.took)
		}
	}
	return lines.String()
}
